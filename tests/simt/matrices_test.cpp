#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "simt/emulator/counters.h"
#include "tests/simt/support.h"
#include "tests/simt/tensor_kernels.h"

// Products and moves of whole warps. Fragments are put together here by the manual's own words, group and
// thread in group, and not by simt/fragments.h.

namespace simt::test {
namespace {

constexpr int kLanes = 32;
constexpr Factor kFactors[] = {Factor::f16, Factor::bf16, Factor::tf32};

struct Place {
  int row, column;
  bool operator==(const Place&) const = default;
};

int group_of(int lane) {
  return lane >> 2;
}
int in_group(int lane) {
  return lane % 4;
}

// Element a_i of m16n8k16 (i < 8) or of m16n8k8 for tf32 (i < 4); likewise b_i and c_i.
Place place_of_a(Factor type, int lane, int i) {
  if (type == Factor::tf32)
    return {group_of(lane) + (i == 1 || i == 3 ? 8 : 0), in_group(lane) + (i >= 2 ? 4 : 0)};
  const bool upper = i == 0 || i == 1 || i == 4 || i == 5;
  return {group_of(lane) + (upper ? 0 : 8), in_group(lane) * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Place place_of_b(Factor type, int lane, int i) {
  if (type == Factor::tf32) return {in_group(lane) + (i == 1 ? 4 : 0), group_of(lane)};
  return {in_group(lane) * 2 + (i & 1) + (i >= 2 ? 8 : 0), group_of(lane)};
}
Place place_of_c(int lane, int i) {
  return {group_of(lane) + (i >= 2 ? 8 : 0), in_group(lane) * 2 + (i & 1)};
}

template <class PlaceOf>
std::vector<std::uint32_t> registers(Factor type, int count, const std::vector<float>& matrix, int columns,
                                     PlaceOf&& place_of) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(kLanes * count), 0u);
  const int halves = type == Factor::tf32 ? 1 : 2;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < count * halves; ++i) {
      const Place at = place_of(type, lane, i);
      all[static_cast<std::size_t>(lane * count + i / halves)] |=
          bits_of(type, matrix[static_cast<std::size_t>(at.row * columns + at.column)]) << i % halves * 16;
    }
  }
  return all;
}

std::vector<float> multiplied(Factor type, const std::vector<float>& a, const std::vector<float>& b,
                              const std::vector<float>& c) {
  const int depth = type == Factor::tf32 ? 8 : 16;
  std::vector<float> sums(kLanes * 4);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place at = place_of_c(lane, i);
      sums[static_cast<std::size_t>(lane * 4 + i)] = c[static_cast<std::size_t>(at.row * 8 + at.column)];
    }
  const OnDevice<std::uint32_t> left(registers(type, 4, a, depth, place_of_a)),
      right(registers(type, 2, b, 8, place_of_b));
  const OnDevice<float> out(sums);
  EXPECT_OK(mma_registers(type, left.data(), right.data(), out.data()));
  EXPECT_EQ(diagnosis(), "");
  sums = out.read();
  std::vector<float> result(16 * 8);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place at = place_of_c(lane, i);
      result[static_cast<std::size_t>(at.row * 8 + at.column)] = sums[static_cast<std::size_t>(lane * 4 + i)];
    }
  return result;
}

TEST(Mma, FragmentsCoverEachElementOnce) {
  for (const Factor type : kFactors) {
    const int depth = type == Factor::tf32 ? 8 : 16, halves = type == Factor::tf32 ? 1 : 2;
    std::vector<int> a(static_cast<std::size_t>(16 * depth)), b(static_cast<std::size_t>(8 * depth)),
        c(16 * 8);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4 * halves; ++i) {
        const Element at = fragment::left(type, lane, i / halves, i % halves);
        EXPECT_EQ((Place{at.row, at.column}), place_of_a(type, lane, i)) << lane << " a" << i;
        ++a[static_cast<std::size_t>(at.row * depth + at.column)];
      }
      for (int i = 0; i < 2 * halves; ++i) {
        const Element at = fragment::right(type, lane, i / halves, i % halves);
        EXPECT_EQ((Place{at.row, at.column}), place_of_b(type, lane, i)) << lane << " b" << i;
        ++b[static_cast<std::size_t>(at.row * 8 + at.column)];
      }
      for (int i = 0; i < 4; ++i) {
        const Element at = fragment::sums(lane, i);
        EXPECT_EQ((Place{at.row, at.column}), place_of_c(lane, i)) << lane << " c" << i;
        ++c[static_cast<std::size_t>(at.row * 8 + at.column)];
      }
    }
    EXPECT_EQ(a, std::vector<int>(a.size(), 1));
    EXPECT_EQ(b, std::vector<int>(b.size(), 1));
    EXPECT_EQ(c, std::vector<int>(c.size(), 1));
  }
}

TEST(Mma, EqualsAProductWrittenOut) {
  in_all_orders([] {
    for (const Factor type : kFactors) {
      const int depth = type == Factor::tf32 ? 8 : 16;
      std::vector<float> a, b, c;
      for (int i = 0; i < 16 * depth; ++i) a.push_back(static_cast<float>(i * 7 % 31 - 15) / 4);
      for (int i = 0; i < 8 * depth; ++i) b.push_back(static_cast<float>(i * 5 % 29 - 14) / 8);
      for (int i = 0; i < 16 * 8; ++i) c.push_back(static_cast<float>(i % 17 - 8));
      const std::vector<float> result = multiplied(type, a, b, c);
      for (int m = 0; m < 16; ++m)
        for (int n = 0; n < 8; ++n) {
          double sum = c[static_cast<std::size_t>(m * 8 + n)];
          for (int k = 0; k < depth; ++k)
            sum +=
                double{a[static_cast<std::size_t>(m * depth + k)]} * b[static_cast<std::size_t>(k * 8 + n)];
          ASSERT_EQ(result[static_cast<std::size_t>(m * 8 + n)], sum) << m << ", " << n;
        }
    }
  });
}

// ---- of bytes: m16n8k32, whose a is u8 and whose b is i8

Place place_of_byte_a(int lane, int i) {
  const bool upper = i < 4 || (i >= 8 && i < 12);
  return {group_of(lane) + (upper ? 0 : 8), in_group(lane) * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
}
Place place_of_byte_b(int lane, int i) {
  return {in_group(lane) * 4 + (i & 3) + (i >= 4 ? 16 : 0), group_of(lane)};
}

TEST(Mma, FragmentsOfBytesCoverEachElementOnce) {
  std::vector<int> a(16 * 32), b(32 * 8);
  EXPECT_EQ(depth_of(Factor::u8), 32);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 16; ++i) {
      const Element at = fragment::left(Factor::u8, lane, i / 4, i % 4);
      EXPECT_EQ((Place{at.row, at.column}), place_of_byte_a(lane, i)) << lane << " a" << i;
      ++a[static_cast<std::size_t>(at.row * 32 + at.column)];
    }
    for (int i = 0; i < 8; ++i) {
      const Element at = fragment::right(Factor::u8, lane, i / 4, i % 4);
      EXPECT_EQ((Place{at.row, at.column}), place_of_byte_b(lane, i)) << lane << " b" << i;
      ++b[static_cast<std::size_t>(at.row * 8 + at.column)];
    }
  }
  EXPECT_EQ(a, std::vector<int>(a.size(), 1));
  EXPECT_EQ(b, std::vector<int>(b.size(), 1));
}

TEST(Mma, EqualsAProductOfBytesWrittenOut) {
  const auto a_of = [](int m, int k) { return (m * 37 + k * 11) % 256; };
  const auto b_of = [](int k, int n) { return (k * 29 + n * 53) % 256 - 128; };
  constexpr int kLargest = std::numeric_limits<int>::max();  // from there a sum goes on at the least
  in_all_orders([&] {
    for (const int first : {-7, kLargest}) {
      std::vector<std::uint32_t> a(kLanes * 4), b(kLanes * 2);
      std::vector<int> sums(kLanes * 4);
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < 16; ++i) {
          const Place at = place_of_byte_a(lane, i);
          a[static_cast<std::size_t>(lane * 4 + i / 4)] |= static_cast<std::uint32_t>(a_of(at.row, at.column))
                                                           << 8 * (i % 4);
        }
        for (int i = 0; i < 8; ++i) {
          const Place at = place_of_byte_b(lane, i);
          b[static_cast<std::size_t>(lane * 2 + i / 4)] |=
              static_cast<std::uint32_t>(b_of(at.row, at.column) & 255) << 8 * (i % 4);
        }
        for (int i = 0; i < 4; ++i)
          sums[static_cast<std::size_t>(lane * 4 + i)] = first - (first < 0 ? i : 0);
      }
      const OnDevice<std::uint32_t> left(a), right(b);
      const OnDevice<int> out(sums);
      EXPECT_OK(mma_registers(left.data(), right.data(), out.data()));
      EXPECT_EQ(diagnosis(), "");
      const std::vector<int> result = out.read();
      for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < 4; ++i) {
          const Place at = place_of_c(lane, i);
          std::int64_t sum = sums[static_cast<std::size_t>(lane * 4 + i)];
          for (int k = 0; k < 32; ++k) sum += a_of(at.row, k) * b_of(k, at.column);
          ASSERT_EQ(result[static_cast<std::size_t>(lane * 4 + i)], static_cast<int>(sum))
              << at.row << ", " << at.column;
        }
    }
  });
}

TEST(DotOfBytes, HasASignOnTheRight) {
  const OnDevice<std::uint32_t> a({0x04030201, 0xffffffff, 0xff000000, 0}),
      b({0x01020304, 0x80808080, 0x7f000000, 0xffffffff});
  const OnDevice<int> c({10, 0, -1, 5});
  EXPECT_OK(dots_of_bytes(4, a.data(), b.data(), c.data()));
  EXPECT_EQ(c.read(), (std::vector<int>{10 + 4 + 6 + 6 + 4, -4 * 255 * 128, 255 * 127 - 1, 5}));
}

// c + p0 + p1 + p2 + ..., of which each sum is an f32.
float sum_in_order(Factor type, Order order, float c, std::array<float, 3> products) {
  const Options saved = options();
  options().sums = order;
  const int depth = type == Factor::tf32 ? 8 : 16;
  std::vector<float> a(static_cast<std::size_t>(16 * depth)), b(static_cast<std::size_t>(8 * depth)),
      sums(16 * 8);
  for (int k = 0; k < 3; ++k) {
    const float root = std::exp2(std::floor(std::log2(std::abs(products[static_cast<std::size_t>(k)])) / 2));
    a[static_cast<std::size_t>(k)] = products[static_cast<std::size_t>(k)] / root;
    b[static_cast<std::size_t>(k * 8)] = root;
  }
  sums[0] = c;
  const float result = multiplied(type, a, b, sums)[0];
  options() = saved;
  return result;
}

TEST(Mma, SumsAreF32InTheChosenOrder) {
  constexpr float kLarge = 1 << 24;  // plus 1 is a tie, which goes back to it
  for (const Factor type : kFactors) {
    EXPECT_EQ(sum_in_order(type, {Order::Kind::forward}, 0, {kLarge, 1, -kLarge}), 0);
    EXPECT_EQ(sum_in_order(type, {Order::Kind::reverse}, 0, {kLarge, 1, -kLarge}), 1);
    EXPECT_EQ(sum_in_order(type, {Order::Kind::forward}, 1, {kLarge, 1, -kLarge}), 0);
    EXPECT_EQ(sum_in_order(type, {Order::Kind::reverse}, 1, {kLarge, 1, -kLarge}), 2);
    EXPECT_EQ(sum_in_order(type, {Order::Kind::forward}, 1, {1, kLarge, -kLarge}), 2);
    int zeros = 0, others = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Order random{Order::Kind::random, seed};
      const float sum = sum_in_order(type, random, 0, {kLarge, 1, -kLarge});
      EXPECT_EQ(sum_in_order(type, random, 0, {kLarge, 1, -kLarge}), sum) << "the same again";
      ++(sum == 0 ? zeros : others);
    }
    EXPECT_GT(zeros, 0);
    EXPECT_GT(others, 0);
  }
}

TEST(Mma, ProductsAreExact) {
  // (1 + 2^-10)^2 has 21 bits, and one of two factors of bf16 with 8 bits each has 15.
  const float f16 = 1 + std::exp2(-10.0f), bf16 = 1 + std::exp2(-7.0f);
  for (const auto& [type, x] : {std::pair{Factor::f16, f16}, {Factor::tf32, f16}, {Factor::bf16, bf16}}) {
    const int depth = type == Factor::tf32 ? 8 : 16;
    std::vector<float> a(static_cast<std::size_t>(16 * depth), x), b(static_cast<std::size_t>(8 * depth));
    b[0] = x;
    EXPECT_EQ(multiplied(type, a, b, std::vector<float>(16 * 8))[0], x * x);
  }
  // Subnormal and huge factors.
  std::vector<float> a(16 * 16), b(16 * 8);
  a[0] = std::exp2(-24.0f), b[0] = 65504;
  EXPECT_EQ(multiplied(Factor::f16, a, b, std::vector<float>(16 * 8))[0], 65504 * std::exp2(-24.0f));
  a[0] = std::exp2(-130.0f), b[0] = std::exp2(120.0f);
  EXPECT_EQ(multiplied(Factor::bf16, a, b, std::vector<float>(16 * 8))[0], std::exp2(-10.0f));
}

TEST(Mma, OfTf32TheLowerThirteenBitsDoNotCount) {
  std::vector<float> a(16 * 8), b(8 * 8);
  a[0] = std::bit_cast<float>(0x3f801fffu), b[0] = 1;
  EXPECT_EQ(multiplied(Factor::tf32, a, b, std::vector<float>(16 * 8))[0], 1.0f);

  const std::vector<float> x = {1,
                                std::bit_cast<float>(0x3f801000u),
                                std::bit_cast<float>(0x3f800fffu),
                                std::bit_cast<float>(0xbf801000u),
                                INFINITY,
                                NAN,
                                std::bit_cast<float>(0x7f7fffffu)};
  const OnDevice<float> in(x);
  const OnDevice<std::uint32_t> out(x.size());
  EXPECT_OK(round_to_tf32(static_cast<int>(x.size()), in.data(), out.data()));
  const std::vector<std::uint32_t> y = out.read();
  EXPECT_EQ(y[0], 0x3f800000u);
  EXPECT_EQ(y[1], 0x3f802000u) << "a tie goes away from zero";
  EXPECT_EQ(y[2], 0x3f800000u);
  EXPECT_EQ(y[3], 0xbf802000u);
  EXPECT_EQ(y[4], 0x7f800000u);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(y[5])));
  EXPECT_EQ(y[6], 0x7f800000u) << "beyond the largest";
}

// ---- moves

std::vector<std::uint16_t> numbered_lines() {
  std::vector<std::uint16_t> x(32 * 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  return x;
}

// By the manual: lane l has of each matrix row l / 4, numbers 2 (l % 4) and the next; transposed, of column l
// / 4.
std::uint32_t expected_part(bool columns, int lane, int matrix) {
  const int outer = group_of(lane), inner = in_group(lane) * 2;
  const auto number = [&](int k) {
    const int row = columns ? inner + k : outer, column = columns ? outer : inner + k;
    return static_cast<std::uint32_t>((matrix * 8 + row) * 8 + column);
  };
  return number(0) | number(1) << 16;
}

TEST(Ldmatrix, GivesEachLaneItsTwoNumbersOfEachMatrix) {
  in_all_orders([] {
    const OnDevice<std::uint16_t> x(numbered_lines());
    for (const int count : {1, 2, 4}) {
      for (const bool columns : {false, true}) {
        const OnDevice<std::uint32_t> parts(static_cast<std::size_t>(32 * count));
        EXPECT_OK(ldmatrix_rows(count, columns, 16, x.data(), parts.data()));
        EXPECT_EQ(diagnosis(), "");
        const auto all = parts.read();
        for (int lane = 0; lane < kLanes; ++lane)
          for (int i = 0; i < count; ++i)
            ASSERT_EQ(all[static_cast<std::size_t>(lane * count + i)], expected_part(columns, lane, i))
                << "lane " << lane << ", matrix " << i << " of " << count;
      }
    }
  });
}

// Lines that follow each other lie in different banks; at a pitch of 128 bytes all lie in the same four.
TEST(Ldmatrix, BankConflictsAreCounted) {
  if (!can_count()) GTEST_SKIP() << "only the race build counts";
  in_all_orders([] {
    const OnDevice<std::uint16_t> x(numbered_lines());
    for (const int count : {1, 2, 4}) {
      for (const auto& [pitch, rounds_of_one] : {std::pair{16, 1}, {128, 8}, {144, 1}, {32, 2}, {64, 4}}) {
        const OnDevice<std::uint32_t> parts(static_cast<std::size_t>(32 * count));
        start_counting();
        EXPECT_OK(ldmatrix_rows(count, false, pitch, x.data(), parts.data()));
        EXPECT_EQ(diagnosis(), "");
        const Counts counts = stop_counting();
        const std::string place = marked_line("matrices.cu", "ldmatrix");
        const AccessCount* found = nullptr;
        for (const AccessCount& each : counts.find("ldmatrix")->accesses)
          if (each.place == place && each.kind == AccessKind::shared_read) found = &each;
        ASSERT_NE(found, nullptr) << table(counts);
        EXPECT_EQ(found->warps, 1u);
        EXPECT_EQ(found->bytes, static_cast<std::uint64_t>(128 * count));
        EXPECT_EQ(found->fewest_rounds, static_cast<std::uint64_t>(count));
        EXPECT_EQ(found->rounds, static_cast<std::uint64_t>(count * rounds_of_one)) << "pitch " << pitch;
      }
    }
  });
}

// ---- planted

class MatrixBugs : public testing::TestWithParam<Planted> {};
TEST_P(MatrixBugs, AreNamedInEveryOrder) {
  expect_found(GetParam(), "matrices.cu");
}

INSTANTIATE_TEST_SUITE_P(
    Ldmatrix, MatrixBugs,
    testing::Values(BUG(ldmatrix_divergent, "deadlock", "thread (0,0,0)", "ldmatrix", "@ldmatrix_bug",
                        "0xffff0000"),
                    BUG(ldmatrix_two_places, "warp collective mismatch", "thread (0,0,0)", "ldmatrix",
                        "@ldmatrix_other_place", "thread (16,0,0)", "@ldmatrix_bug"),
                    BUG(ldmatrix_two_forms, "warp collective mismatch", "thread (0,0,0)", "ldmatrix",
                        "@ldmatrix_two_forms", "thread (16,0,0)", "ldmatrix.trans"),
                    BUG(ldmatrix_of_a_part, "32 lanes", "20", "@ldmatrix_bug"),
                    BUG(ldmatrix_misaligned, "ldmatrix", "thread (5,0,0)", "16", "@ldmatrix_bug"),
                    BUG(ldmatrix_global, "ldmatrix", "thread (0,0,0)", "shared memory", "@ldmatrix_bug"),
                    BUG(ldmatrix_local, "ldmatrix", "thread (0,0,0)", "shared memory", "@ldmatrix_bug")),
    name_of);
INSTANTIATE_TEST_SUITE_P(Mma, MatrixBugs,
                         testing::Values(BUG(mma_divergent, "deadlock", "thread (0,0,0)", "mma.f16",
                                             "@mma_divergent", "0x80")),
                         name_of);

#if defined(SIMT_RACE)
INSTANTIATE_TEST_SUITE_P(
    LdmatrixRace, MatrixBugs,
    testing::Values(BUG(ldmatrix_no_syncwarp, "race in shared memory", "@ldmatrix_no_syncwarp",
                        "@ldmatrix_no_syncwarp_write", "__syncwarp")
                        .by([](unsigned a, unsigned b) { return a != b && b < 32 && a / 4 == b % 8; }),
                    BUG(ldmatrix_columns_no_syncwarp, "race in shared memory",
                        "@ldmatrix_columns_no_syncwarp", "__syncwarp")
                        .by([](unsigned a, unsigned b) { return a != b && a % 4 == b / 2; }),
                    BUG(ldmatrix_unwritten, "shared memory", "@ldmatrix_unwritten")
                        .by([](unsigned a, unsigned) { return a / 4 == 1; })),
    name_of);
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST(LdmatrixBounds, ALineBeyondSharedMemoryNamesItsLane) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const OnDevice<float> out(32);
  EXPECT_OK(ldmatrix_beyond(0, out.data()));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((ldmatrix_beyond(1, out.data()), diagnosis()),
               "kernel ldmatrix_beyond, block .0,0,0.: thread .31,0,0(.|\n)*heap-buffer-overflow(.|\n)*" +
                   marked_line("matrices.cu", "ldmatrix_beyond"));
}
#endif

}  // namespace
}  // namespace simt::test
