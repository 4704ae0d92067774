#include <cstring>

#include "tests/simt/support.h"
#include "tests/simt/tensor_kernels.h"

// wgmma. Factors are laid out here by the manual's table of canonical layouts, written as it writes them:
// shapes and strides in elements, then a swizzle of the bytes.

namespace simt::test {
namespace {

// Swizzle<B, 4, 3>.
int swizzled_byte(int bits, int byte) {
  const int mask = ((1 << bits) - 1) << 7;
  return byte ^ ((byte & mask) >> 3);
}

// A canonical layout: B of its swizzle (0: none), the distances in bytes, T elements in 128 bits.
struct Canonical {
  Major major;
  int swizzle_bits;
  int leading, stride;
  int element_bytes;

  int byte_of(int row, int k) const {
    const int t = 16 / element_bytes, w = 1 << swizzle_bits, lbo = leading / element_bytes,
              sbo = stride / element_bytes;
    int element;
    if (major == Major::depth && swizzle_bits == 0) {  // ((8,m),(T,2k)):((1T,SBO),(1,LBO))
      element = row % 8 * t + row / 8 * sbo + k % t + k / t * lbo;
    } else if (major == Major::depth) {  // ((8,m),(T,2k)):((wT,SBO),(1,T))
      element = row % 8 * w * t + row / 8 * sbo + k % t + k / t * t;
    } else if (swizzle_bits == 0) {  // ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
      element = row % t + row / t * sbo + k % 8 * t + k / 8 * lbo;
    } else {  // ((T,w,m),(8,k)):((1,T,LBO),(wT,SBO))
      element = row % t + row / t % w * t + row / (t * w) * lbo + k % 8 * w * t + k / 8 * sbo;
    }
    return swizzled_byte(swizzle_bits, element * element_bytes);
  }
};

struct Shape {
  Factor type;
  Swizzle swizzle;
  Major left, right;
  int columns;
  bool accumulate = true;
};

// The steps of a tile whose line along the depth is full, or two pieces where there is no swizzle.
void check_product(const Shape& s) {
  SCOPED_TRACE(testing::Message() << "type " << int(s.type) << ", swizzle " << int(s.swizzle) << ", majors "
                                  << int(s.left) << int(s.right) << ", columns " << s.columns);
  const int bytes = s.type == Factor::tf32 ? 4 : 2, depth = s.type == Factor::tf32 ? 8 : 16;
  const int bits = static_cast<int>(s.swizzle), line = 16 << bits;
  const bool by_depth = s.left == Major::depth && s.right == Major::depth;
  const int steps = by_depth ? (bits == 0 ? 1 : line / 32) : 2, all = steps * depth;
  const auto layout = [&](Major major, int rows) {
    if (major == Major::depth && bits == 0)
      return Canonical{major, 0, rows * 16 + (by_depth ? 0 : 32), 128, bytes};
    if (major == Major::depth) return Canonical{major, bits, 0, 8 * line, bytes};
    // 8 depths of all rows, then the next 8.
    if (bits == 0) return Canonical{major, 0, rows / 8 * 128, 128, bytes};
    return Canonical{major, bits, 8 * line, rows * bytes / line * 8 * line, bytes};
  };
  const Canonical a_at = layout(s.left, 64), b_at = layout(s.right, s.columns);
  const auto step_bytes = [&](const Canonical& at) {
    if (at.major == Major::depth) return bits == 0 ? 2 * at.leading : 32;
    return bits == 0 ? 2 * at.leading : 2 * at.stride;
  };
  const int a_step = step_bytes(a_at), b_step = step_bytes(b_at);
  const auto a_value = [&](int m, int k) { return static_cast<float>((m * 5 + k * 3) % 17 - 8) / 4; };
  const auto b_value = [&](int n, int k) { return static_cast<float>((n * 7 + k * 11) % 13 - 6) / 2; };
  std::vector<unsigned char> a(8192), b(32768);
  // A factor that starts at a line's second half is swizzled by where it lies, as its address is.
  const auto put = [&](std::vector<unsigned char>& to, const Canonical& at, int step_size, int row, int k,
                       float value) {
    const int step = k / depth, inside = k % depth;
    Canonical plain = at;
    plain.swizzle_bits = at.swizzle_bits;
    // The byte without the swizzle is found by undoing it, for it is its own inverse.
    const int byte = swizzled_byte(bits, swizzled_byte(bits, plain.byte_of(row, inside)) + step * step_size);
    const std::uint32_t number = bits_of(s.type, value);
    ASSERT_LE(static_cast<std::size_t>(byte + bytes), to.size());
    std::memcpy(&to[static_cast<std::size_t>(byte)], &number, static_cast<std::size_t>(bytes));
  };
  for (int k = 0; k < all; ++k) {
    for (int m = 0; m < 64; ++m) put(a, a_at, a_step, m, k, a_value(m, k));
    for (int n = 0; n < s.columns; ++n) put(b, b_at, b_step, n, k, b_value(n, k));
  }
  std::vector<float> sums(static_cast<std::size_t>(128 * s.columns / 2));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 23) - 11;
  const OnDevice<unsigned char> a_on(a), b_on(b);
  const OnDevice<float> sums_on(sums);
  const WgmmaCase c{s.swizzle,
                    s.left,
                    s.right,
                    s.columns,
                    steps,
                    a_step,
                    b_step,
                    static_cast<unsigned>(a_at.leading),
                    static_cast<unsigned>(a_at.stride),
                    static_cast<unsigned>(b_at.leading),
                    static_cast<unsigned>(b_at.stride),
                    static_cast<unsigned>(a.size()),
                    static_cast<unsigned>(b.size()),
                    s.accumulate};
  EXPECT_OK(wgmma_product(s.type, c, a_on.data(), b_on.data(), sums_on.data()));
  ASSERT_EQ(diagnosis(), "");
  const std::vector<float> result = sums_on.read();
  const int count = s.columns / 2;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < count; ++i) {
      const int m = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, n = i / 4 * 8 + t % 4 * 2 + i % 2;
      double sum = s.accumulate ? sums[static_cast<std::size_t>(t * count + i)] : 0;
      for (int k = 0; k < all; ++k) sum += double{a_value(m, k)} * b_value(n, k);
      ASSERT_EQ(result[static_cast<std::size_t>(t * count + i)], sum) << "row " << m << ", column " << n;
    }
}

constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64, Swizzle::bytes_128};

TEST(Wgmma, FactorsAlongTheDepthInEverySwizzle) {
  early_and_late([] {
    for (const Factor type : {Factor::f16, Factor::bf16, Factor::tf32})
      for (const Swizzle swizzle : kSwizzles) check_product({type, swizzle, Major::depth, Major::depth, 64});
  });
}

TEST(Wgmma, FactorsAlongTheRowsInEverySwizzle) {
  early_and_late([] {
    for (const Factor type : {Factor::f16, Factor::bf16})
      for (const Swizzle swizzle : kSwizzles) check_product({type, swizzle, Major::rows, Major::rows, 64});
  });
}

TEST(Wgmma, FewAndManyColumnsAndWithoutSums) {
  for (const Factor type : {Factor::f16, Factor::bf16, Factor::tf32}) {
    check_product({type, Swizzle::bytes_32, Major::depth, Major::depth, 256});
    check_product({type, Swizzle::none, Major::depth, Major::depth, 8});
    check_product({type, Swizzle::bytes_128, Major::depth, Major::depth, 64, false});
  }
  check_product({Factor::f16, Swizzle::bytes_128, Major::depth, Major::rows, 64});
}

// The fields by the manual: (x & 0x3FFFF) >> 4, at bits 0, 16 and 32; the swizzle at 62: 1 for 128 bytes, 2
// for 64, 3 for 32.
TEST(Wgmma, DescriptorsAreEncodedAsTheManualSays) {
  const auto* const at = reinterpret_cast<const void*>(std::uintptr_t{0x7f0012345670});
  EXPECT_EQ(factor_descriptor(at, Swizzle::none, 0x120, 0x3fff0).bits,
            0x00003fff00120567u & 0x3fffffffffffffffu)
      << "0x34567 and up are cut to 18 bits";
  EXPECT_EQ(factor_descriptor(at, Swizzle::bytes_128, 16, 1024).bits >> 62, 1u);
  EXPECT_EQ(factor_descriptor(at, Swizzle::bytes_64, 16, 512).bits >> 62, 2u);
  EXPECT_EQ(factor_descriptor(at, Swizzle::bytes_32, 16, 256).bits >> 62, 3u);
  EXPECT_EQ(factor_descriptor(at, Swizzle::bytes_128, 16, 1024).bits >> 32 & 0x3fff, 64u);
  EXPECT_EQ(factor_descriptor(at, Swizzle::bytes_128, 16, 1024).bits >> 16 & 0x3fff, 1u);
}

struct Gemm {
  int k;
  std::vector<std::uint16_t> a, b;

  explicit Gemm(int tiles) : k(tiles * 64) {
    for (int i = 0; i < 64 * k; ++i) {
      a.push_back(static_cast<std::uint16_t>(bits_of(Factor::f16, static_cast<float>(i % 7 - 3))));
      b.push_back(static_cast<std::uint16_t>(bits_of(Factor::f16, static_cast<float>(i % 5 - 2) / 2)));
    }
  }
  TensorMap map_of(void* data) const {
    TensorMap map;
    EXPECT_OK(make_tensor_map(&map, {.type = TensorType::f16,
                                     .data = data,
                                     .size = {static_cast<std::uint64_t>(k), 64},
                                     .stride = {0, static_cast<std::uint64_t>(2 * k)},
                                     .tile = {64, 64},
                                     .swizzle = Swizzle::bytes_128}));
    return map;
  }
  std::string run(Release when, float* y) const {
    const OnDevice<std::uint16_t> a_on(a), b_on(b);
    EXPECT_OK(wgmma_gemm(when, map_of(a_on.data()), map_of(b_on.data()), k / 64, y));
    return diagnosis();
  }
};

TEST(Wgmma, AProducerAndFourWarpsMultiplyWhatTensorMapsBring) {
  early_and_late([] {
    for (const int tiles : {1, 2, 5}) {
      const Gemm gemm(tiles);
      const OnDevice<float> y(64 * 64);
      ASSERT_EQ(gemm.run(Release::in_time, y.data()), "");
      const std::vector<float> result = y.read();
      for (int m = 0; m < 64; ++m)
        for (int n = 0; n < 64; ++n) {
          float sum = 0;
          for (int i = 0; i < gemm.k; ++i)
            sum += static_cast<float>((m * gemm.k + i) % 7 - 3) *
                   static_cast<float>((n * gemm.k + i) % 5 - 2) / 2;
          ASSERT_EQ(result[static_cast<std::size_t>(m * 64 + n)], sum) << m << ", " << n;
        }
    }
  });
}

TEST(Wgmma, AStageReleasedTooEarlyIsARace) {
  if (!can_find_races()) GTEST_SKIP() << "only the race build names it";
  early_and_late([] {
    for (const Release when : {Release::before_the_wait, Release::one_group_too_soon}) {
      const OnDevice<float> y(64 * 64);
      const std::string text = Gemm(5).run(when, y.data());
      EXPECT_TEXT(text, "race in shared memory");
      EXPECT_TEXT(text, marked_line("warpgroups.cu", "wgmma_gemm"));
      EXPECT_TEXT(text, marked_line("warpgroups.cu", "wgmma_gemm_load"));
      EXPECT_TEXT(text, "wgmma.wait_group");
    }
  });
}

// ---- planted

TEST(Wgmma, TheKernelOfTheBugsIsRightWithoutThem) {
  early_and_late([] {
    const OnDevice<float> out(128);
    EXPECT_OK(wgmma_right(out.data()));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(out.read(), std::vector<float>(128, 16.0f));
  });
}

TEST(Wgmma, WithoutAProxyFenceItReadsNothing) {
  if (can_find_races()) GTEST_SKIP() << "the race build names it";
  early_and_late([] {
    const OnDevice<float> out(128);
    EXPECT_OK(wgmma_no_proxy_fence(out.data()));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_TRUE(is_nan(out.read()[7]));
  });
}

class WarpgroupBugs : public testing::TestWithParam<Planted> {};
TEST_P(WarpgroupBugs, AreNamedInEveryOrder) {
  expect_found(GetParam(), "warpgroups.cu");
}
INSTANTIATE_TEST_SUITE_P(
    Wgmma, WarpgroupBugs,
    testing::Values(BUG(wgmma_no_fence, "wgmma.mma_async", "wgmma.fence", "@wgmma_product"),
                    BUG(wgmma_no_second_fence, "wgmma.mma_async", "wgmma.fence", "@wgmma_second_product"),
                    BUG(wgmma_no_wait, "wgmma", "@wgmma_product"),
                    BUG(wgmma_no_commit, "wgmma", "@wgmma_product"),
                    BUG(wgmma_touches_sums, "wgmma.wait_group", "@wgmma_wait"),
                    BUG(wgmma_part_of_a_group, "96 threads", "128", "@wgmma_product"),
                    BUG(wgmma_one_warp_less, "warp 3", "@wgmma_product"),
                    BUG(wgmma_two_factors, "warpgroup", "@wgmma_product"),
                    BUG(wgmma_one_lane_less, "warp collective mismatch", "thread (40,0,0)",
                        "wgmma.commit_group", "@wgmma_product"),
                    BUG(wgmma_second_line, "128 bytes", "@wgmma_product"),
                    BUG(wgmma_no_distance, "stride distance", "@wgmma_product")),
    name_of);

#if defined(SIMT_RACE)
INSTANTIATE_TEST_SUITE_P(WgmmaRace, WarpgroupBugs,
                         testing::Values(BUG(wgmma_no_proxy_fence, "shared memory", "asynchronously",
                                             "@wgmma_product", "@wgmma_write", "fence.proxy.async"),
                                         BUG(wgmma_factor_changes, "race in shared memory", "@wgmma_product",
                                             "@wgmma_factor_changes")),
                         name_of);
#endif

}  // namespace
}  // namespace simt::test
