#include "tensor/half.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/convert.h"
#include "tensor/philox.h"

namespace athanor::half_test {

/// What a format with that many exponent and fraction bits says, by the definition and in double.
struct Format {
  int exponent_bits, fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double value(std::uint16_t bits) const {
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
    return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias() - fraction_bits);
  }
  /// The nearest pattern, ties to even, found by searching: positive patterns grow with their values.
  std::uint16_t nearest(double value) const {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::abs(value);
    const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
    std::uint16_t low = 0, high = infinity;
    while (high - low > 1) {
      const auto middle = static_cast<std::uint16_t>((low + high) / 2);
      (this->value(middle) <= size ? low : high) = middle;
    }
    // Beyond the largest number, the next step of the grid stands for infinity.
    const double below = this->value(low);
    const double above = high == infinity ? std::ldexp(2, bias()) : this->value(high);
    const double half_way = below + (above - below) / 2;
    const bool up = size > half_way || (size == half_way && (low & 1) != 0);
    return static_cast<std::uint16_t>(sign | (up ? high : low));
  }
};

template <class T> struct Narrow : testing::Test {
  static constexpr Format format = std::is_same_v<T, Half> ? Format{5, 10} : Format{8, 7};
  static T pattern(int bits) {
    T half;
    half.bits = static_cast<std::uint16_t>(bits);
    return half;
  }
};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Narrow, Types);

TYPED_TEST(Narrow, EveryPatternHasItsValueAndComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam half = this->pattern(bits);
    const double expected = this->format.value(half.bits);
    const float got = static_cast<float>(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(got)))) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(expected)), std::bit_cast<std::uint32_t>(got))
          << bits;
      ASSERT_EQ(TypeParam(got).bits, half.bits);
    }
  }
}

TYPED_TEST(Narrow, RoundsToNearestEvenAroundEveryPattern) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double value = this->format.value(static_cast<std::uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    const double next = this->format.value(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>(
        std::isfinite(next) ? (value + next) / 2
                            : value + (value - this->format.value(static_cast<std::uint16_t>(bits - 1))) / 2);
    for (const float near : {static_cast<float>(value), middle, std::nextafter(middle, 0.0f),
                             std::nextafter(middle, 2 * middle)}) {
      ASSERT_EQ(TypeParam(near).bits, this->format.nearest(near)) << near;
    }
  }
}

TYPED_TEST(Narrow, RoundsRandomFloats) {
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(philox_word({5, 0}, i));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(value))));
    } else {
      ASSERT_EQ(TypeParam(value).bits, this->format.nearest(value)) << value;
    }
  }
}

TYPED_TEST(Narrow, KeepsSignsInfinitiesAndOverflow) {
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  EXPECT_EQ(static_cast<float>(TypeParam(-INFINITY)), -INFINITY);
  EXPECT_EQ(static_cast<float>(TypeParam(std::numeric_limits<float>::max())), INFINITY);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min() / 4).bits, 0);
}

// Through float, a double just off the middle of two patterns would be rounded twice, and wrongly.
TYPED_TEST(Narrow, DoublesRoundOnce) {
  for (int bits = 0; bits < 65535; ++bits) {
    const double value = this->format.value(static_cast<std::uint16_t>(bits));
    const double next = this->format.value(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(value) || !std::isfinite(next)) continue;
    const double middle = (value + next) / 2;
    for (const double near : {middle, std::nextafter(middle, -INFINITY), std::nextafter(middle, INFINITY)}) {
      ASSERT_EQ(kernels::convert<TypeParam>(near).bits, this->format.nearest(near)) << near;
    }
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(kernels::convert<TypeParam>(static_cast<double>(NAN)))));
  EXPECT_EQ(static_cast<float>(kernels::convert<TypeParam>(-1e300)), -INFINITY);
  EXPECT_EQ(kernels::convert<TypeParam>(1e-300).bits, 0);
}

TYPED_TEST(Narrow, IntegersRoundOnce) {
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const auto value = static_cast<std::int64_t>(philox_word64({6, 0}, i)) >> (i % 63);
    // Exact in long double, and the reference's grid is a power of two: splitting the value loses nothing.
    const double high = static_cast<double>(value >> 11 << 11);
    const bool rest = (value & 2047) != 0;
    const double sticky = rest ? std::nextafter(high, INFINITY) : high;
    const double exact = std::abs(value) < (std::int64_t{1} << 53) ? static_cast<double>(value) : sticky;
    ASSERT_EQ(kernels::convert<TypeParam>(value).bits, this->format.nearest(exact)) << value;
  }
}

}  // namespace athanor::half_test
