#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "bf16.h"

namespace {

float rounded(float x) {
  return from_bf16(to_bf16(x));
}
float of_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(Bf16, KeepsWhatFits) {
  for (const float x : {0.0f, 1.0f, -1.0f, 1.0078125f, 0.15625f, -3.0e38f, 1e-40f * 0})
    EXPECT_EQ(rounded(rounded(x)), rounded(x)) << "a bf16 must not change when it is rounded again";
  EXPECT_EQ(rounded(1.0078125f), 1.0078125f) << "1 + 2^-7 is a bf16";
  EXPECT_EQ(to_bf16(-0.0f), 0x8000) << "minus zero keeps its sign";
}

TEST(Bf16, RoundsToTheNearest) {
  EXPECT_EQ(rounded(of_bits(0x3f80'8001)), 1.0078125f)
      << "just above the middle: cutting the lower half off rounds down";
  EXPECT_EQ(rounded(of_bits(0x3f80'7fff)), 1.0f) << "just below the middle";
  EXPECT_EQ(rounded(of_bits(0xbf80'8001)), -1.0078125f) << "negative numbers are rounded by their size";
  EXPECT_EQ(rounded(of_bits(0x3fff'ffff)), 2.0f) << "the carry raises the exponent";
}

TEST(Bf16, RoundsTiesToEven) {
  EXPECT_NE(rounded(of_bits(0x3f80'8000)), 1.0078125f)
      << "the middle between 1 and 1 + 2^-7 was rounded up: ties go to the even one, whose last bit is 0";
  EXPECT_EQ(rounded(of_bits(0x3f80'8000)), 1.0f) << "1 is even";
  EXPECT_NE(rounded(of_bits(0x3f81'8000)), 1.0078125f)
      << "the middle between 1 + 2^-7 and 1 + 2^-6 was rounded down: ties go to the even one, whose last bit "
         "is 0";
  EXPECT_EQ(rounded(of_bits(0x3f81'8000)), 1.015625f) << "1 + 2^-6 is even";
}

TEST(Bf16, KeepsNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded(infinity), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity)
      << "the largest f32 is nearer to infinity than to a bf16";
  EXPECT_TRUE(std::isnan(rounded(std::nanf("")))) << "a NaN must stay one";
  EXPECT_TRUE(std::isnan(rounded(of_bits(0x7f80'0001))))
      << "a NaN whose only bit was in the lower half became infinity";
  EXPECT_TRUE(std::isnan(rounded(of_bits(0x7fff'ffff))))
      << "the carry out of a NaN's fraction made it a number";
  EXPECT_TRUE(std::isnan(rounded(of_bits(0xffff'ffff))))
      << "the carry out of a NaN's fraction made it a number";
}

TEST(Bf16, HasNoBias) {  // over all fractions, errors add up to nothing
  double error = 0;
  for (std::uint32_t lower = 0; lower < 0x2'0000; ++lower) {
    const float x = of_bits(0x3f80'0000 + lower);
    error += rounded(x) - x;
  }
  EXPECT_NEAR(error, 0, 1e-9) << "rounding has a direction: " << (error < 0 ? "down" : "up");
}

}  // namespace
