#include <cstdio>

#include "simt/ptx/kernels.h"
#include "tests/simt/support.h"
#include "tests/simt/tensor_kernels.h"

// Faults planted in what nvcc wrote, of which C++ knows nothing: faults.py changes the PTX of the kernel
// of tests/simt/warpgroups.cu in which a thread brings tiles and four warps multiply them.

namespace simt::test {
namespace {

struct Fault {
  const char* name;          // of faults.py
  const char *late, *early;  // what is said of it, by SIMT_ASYNC
  friend std::ostream& operator<<(std::ostream& to, const Fault& fault) { return to << fault.name; }
};

constexpr int kTiles = 7, kSide = 64, kDepth = kTiles * 64;

/// Small integers, of which every sum is exact.
int left(int row, int k) {
  return (row * 3 + k) % 7 - 3;
}
int right(int column, int k) {
  return (column * 5 + k * 2) % 9 - 4;
}

TensorMap map_of(void* data) {
  TensorMap map;
  EXPECT_OK(make_tensor_map(&map, {.type = TensorType::f16,
                                   .data = data,
                                   .size = {kDepth, kSide},
                                   .stride = {0, 2 * kDepth},
                                   .tile = {64, kSide},
                                   .swizzle = Swizzle::bytes_128}));
  return map;
}

std::vector<std::uint16_t> factor(int (*of)(int line, int k)) {
  std::vector<std::uint16_t> bits;
  for (int line = 0; line < kSide; ++line)
    for (int k = 0; k < kDepth; ++k)
      bits.push_back(static_cast<std::uint16_t>(bits_of(Factor::f16, static_cast<float>(of(line, k)))));
  return bits;
}

const char* running = nullptr;

/// Runs the kernel with that fault. What is said; of a wrong result the first number; else nothing.
std::string run(const char* fault) {
  running = fault;
  const Substitute before = substitute_kernels([](const Launch& how, const Kernel& kernel) {
    constexpr const char* kName = "_ZN4simt4test12_GLOBAL__N_111gemm_kernelILNS0_7ReleaseE0EEEv";
    return ptx::kernel_of(*ptx::entry_of(kName, running), how, kernel.parameters);
  });
  const OnDevice<std::uint16_t> a(factor(left)), b(factor(right));
  const OnDevice<float> y(kSide * kSide);
  EXPECT_OK(wgmma_gemm(Release::in_time, map_of(a.data()), map_of(b.data()), kTiles, y.data()));
  substitute_kernels(before);
  if (std::string text = diagnosis(); !text.empty()) return text;
  const std::vector<float> result = y.read();
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column) {
      int sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += left(row, k) * right(column, k);
      const float is = result[static_cast<std::size_t>(row * kSide + column)];
      if (is != static_cast<float>(sum)) {
        return "wrong: y(" + std::to_string(row) + ", " + std::to_string(column) + ") is " +
               std::to_string(is) + ", not " + std::to_string(sum);
      }
    }
  return {};
}

class PtxFaults : public testing::TestWithParam<Fault> {};

TEST_P(PtxFaults, AreFound) {
  early_and_late([] {
    const bool late = options().async == Async::late;
    const std::string said = run(GetParam().name);
    if (options().threads.kind == Order::Kind::forward)
      std::printf("%s, %s: %s\n", GetParam().name, late ? "late" : "early", said.c_str());
    EXPECT_TEXT(said, std::string(late ? GetParam().late : GetParam().early));
  });
}

TEST(PtxFaults, NoneWhereNoneIsPlanted) {
  early_and_late([] { EXPECT_EQ(run("none"), ""); });
}

constexpr const char* kRead = "which a wgmma in flight reads";
INSTANTIATE_TEST_SUITE_P(
    Wgmma, PtxFaults,
    testing::Values(Fault{"stride", "wrong: y(8, 0)", "wrong: y(8, 0)"},
                    Fault{"transposed", "wrong: y(0, 0)", "wrong: y(0, 0)"},
                    Fault{"parity", "is one arrival more than the 1 that phase 0", "but may miss it"},
                    Fault{"no_wait", kRead, kRead}, Fault{"wait_of_3", kRead, kRead},
                    Fault{"last_wait", "0 have waited for it, at the kernel's end",
                          "0 have waited for it, at the kernel's end"},
                    Fault{"predicate", "but may miss it", "but may miss it"},
                    Fault{"bytes", "brings 8192 bytes that phase 0", "bytes came that were not expected"}),
    name_of);

}  // namespace
}  // namespace simt::test
