#include <chrono>
#include <cstring>
#include <span>

#include "bench/support/bench.h"
#include "data/formats/crc32c.h"

// Between a file and a training step. Rows beside them are plain copies of as many bytes, on one thread too:
// the column roof_% is held against the copy of all threads.

namespace athanor::bench {
namespace {

std::span<const std::byte> bytes_of(const Tensor& x) {
  return {reinterpret_cast<const std::byte*>(x.data<std::uint8_t>()), static_cast<std::size_t>(x.numel())};
}

void add_crc32c(std::int64_t bytes, const char* impl,
                std::uint32_t (*way)(std::span<const std::byte>, std::uint32_t)) {
  add({"crc32c", "fwd", DType::u8, shape_name({bytes}), impl}, {.bytes = static_cast<double>(bytes)}, [=] {
    const Tensor x = filled({bytes}, DType::u8, 0, 256);
    const bool same = way(bytes_of(x), 0) == detail::crc32c_by_table(bytes_of(x), 0);
    return Prepared{[=] { benchmark::DoNotOptimize(way(bytes_of(x), 0)); }, same ? 0.0 : 1.0, 0};
  });
}

void add_memcpy(std::int64_t bytes) {
  add({"memcpy", "fwd", DType::u8, shape_name({bytes}), "libc"}, {.bytes = 2 * static_cast<double>(bytes)},
      [=] {
        const Tensor x = filled({bytes}, DType::u8, 0, 256), y = Tensor::empty({bytes}, {DType::u8, kCpu});
        const auto run = [=] {
          std::memcpy(y.data<std::uint8_t>(), x.data<std::uint8_t>(), static_cast<std::size_t>(bytes));
          benchmark::ClobberMemory();
        };
        run();
        return Prepared{run, max_error(y, x), 0};
      });
}

}  // namespace

void register_all() {
  for (const std::int64_t bytes : {3072, 31'000, 8 << 20}) {
    add_crc32c(bytes, "athanor", crc32c);
    add_crc32c(bytes, "table", detail::crc32c_by_table);
    add_memcpy(bytes);
  }
}

}  // namespace athanor::bench
