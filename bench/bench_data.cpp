#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "bench/support/bench.h"
#include "bench/support/packed_images.h"
#include "data/formats/crc32c.h"
#include "data/formats/packed.h"
#include "tensor/philox.h"

// Between a file and a training step. Rows beside them are plain copies of as many bytes, on one thread too:
// the column roof_% is held against the copy of all threads.

namespace athanor::bench {
namespace {

void add_crc32c(std::int64_t bytes) {
  add({"crc32c", "fwd", DType::u8, shape_name({bytes}), "isa_l"}, {.bytes = static_cast<double>(bytes)}, [=] {
    const Tensor x = filled({bytes}, DType::u8, 0, 256);
    const auto all = bytes_of(x), head = all.first(all.size() / 3);
    const bool same = crc32c(all) == crc32c(all.subspan(head.size()), crc32c(head));
    return Prepared{[=] { benchmark::DoNotOptimize(crc32c(all)); }, same ? 0.0 : 1.0, 0};
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

constexpr std::int64_t kImages = PackedImages::kCount, kBatch = 512;
constexpr std::size_t kImageBytes = PackedImages::kImageBytes;

/// An epoch in an order drawn anew: each image and label copied to its place in a batch, as a loader does.
void add_packed_epoch(const char* impl, int threads, const PackedOptions& options) {
  const double bytes = 2.0 * static_cast<double>(kImages) * static_cast<double>(kImageBytes);
  add({"packed_epoch", "fwd", DType::u8, shape_name({kImages, 32, 32, 3}), impl},
      {.bytes = bytes, .elements = static_cast<double>(kImages)}, [=] {
        const std::shared_ptr<PackedImages> images = PackedImages::shared();
        const auto store = std::make_shared<PackedStore>(images->path, options);
        const auto order = std::make_shared<std::vector<std::int64_t>>(philox_permutation(kImages, {1, 0}));
        // A batch for each thread.
        const Tensor batch = Tensor::empty({threads, kBatch, 32, 32, 3}, {DType::u8, kCpu});
        const Tensor labels = Tensor::empty({threads, kBatch}, {DType::i64, kCpu});
        double error = 0;
        std::vector<std::byte> scratch;
        for (std::int64_t i = 0; i < kImages; ++i) {
          const StoredSample sample = store->fetch(i, scratch);
          const auto expected = images->image(i);
          if (sample.bytes.size() != kImageBytes || sample.label != i % 10 ||
              std::memcmp(sample.bytes.data(), expected.data(), kImageBytes) != 0) {
            error = 1;
          }
        }
        const auto part = [=](std::int64_t thread) {
          std::vector<std::byte> own;
          std::uint8_t* const to =
              batch.data<std::uint8_t>() + thread * kBatch * static_cast<std::int64_t>(kImageBytes);
          std::int64_t* const labels_to = labels.data<std::int64_t>() + thread * kBatch;
          for (std::int64_t k = thread; k < kImages; k += threads) {
            const StoredSample sample = store->fetch((*order)[static_cast<std::size_t>(k)], own);
            const std::int64_t slot = k / threads % kBatch;
            std::memcpy(to + slot * static_cast<std::int64_t>(kImageBytes), sample.bytes.data(), kImageBytes);
            labels_to[slot] = sample.label;
          }
        };
        const auto run = [=] {
          const std::shared_ptr<PackedImages> alive = images;
          std::vector<std::jthread> helpers;
          for (std::int64_t t = 1; t < threads; ++t) helpers.emplace_back([&part, t] { part(t); });
          part(0);
        };
        return Prepared{run, error, 0};
      });
}

}  // namespace

void register_all() {
  // Images per second are 50,000 over the time.
  add_packed_epoch("map", 1, {.access = PackedAccess::map});
  add_packed_epoch("map_2_threads", 2, {.access = PackedAccess::map});
  add_packed_epoch("map_unchecked", 1, {.check = false, .access = PackedAccess::map});
  add_packed_epoch("pread", 1, {.access = PackedAccess::read});
  add_memcpy(kImages * static_cast<std::int64_t>(kImageBytes));

  for (const std::int64_t bytes : {3072, 31'000, 8 << 20}) {
    add_crc32c(bytes);
    add_memcpy(bytes);
  }
}

}  // namespace athanor::bench
