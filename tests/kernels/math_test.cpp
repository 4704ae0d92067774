#include "kernels/math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"

namespace athanor::math_test {

// Distance of `got` from the exact value, in units in the last place of T at that value.
template <class T> double ulps(T got, long double exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got)) {
    if (got == rounded) return 0;
    // One ulp beyond the largest number counts as one, not as infinitely many.
    const T other = std::isinf(got) ? rounded : got;
    return std::abs(other) == std::numeric_limits<T>::max() && std::signbit(got) == std::signbit(rounded)
               ? 1
               : INFINITY;
  }
  int exponent;
  std::frexp(std::abs(rounded), &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const long double ulp = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / ulp);
}

long double exact_sigmoid(long double x) {
  return 1 / (1 + std::exp(-x));
}

struct Function {
  const char* name;
  float (*f32)(float);
  double (*f64)(double);
  long double (*exact)(long double);
  double max_ulps_f32, max_ulps_f64;  // what kernels/math.h promises
};

const Function kFunctions[] = {
    {"exp", math::exp<float>, math::exp<double>, [](long double x) { return std::exp(x); }, 1.0, 1.0},
    {"log", math::log<float>, math::log<double>, [](long double x) { return std::log(x); }, 0.8, 0.8},
    {"tanh", math::tanh<float>, math::tanh<double>, [](long double x) { return std::tanh(x); }, 1.1, 1.1},
    {"erf", math::erf<float>, math::erf<double>, [](long double x) { return std::erf(x); }, 1.14, 1.1},
    {"sigmoid", math::sigmoid<float>, math::sigmoid<double>, exact_sigmoid, 2.32, 2.4},
    {"expm1", math::expm1<float>, math::expm1<double>, [](long double x) { return std::expm1(x); }, 4.0, 4.0},
    {"log1p", math::log1p<float>, math::log1p<double>, [](long double x) { return std::log1p(x); }, 1.5, 1.5},
};

class Math : public testing::TestWithParam<Function> {};

// Every so many floats: all exponents, both signs, denormals, infinities and NaN.
void check_floats(const Function& function, std::uint64_t stride) {
  double worst = 0;
  float at = 0;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += stride) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double error = ulps(function.f32(x), function.exact(x));
    if (error > worst) worst = error, at = x;
  }
  EXPECT_LE(worst, function.max_ulps_f32) << "at " << at;
  testing::Test::RecordProperty("ulps", std::to_string(worst));
}
TEST_P(Math, FloatIsWithinPromisedUlps) {
  check_floats(GetParam(), 2503);
}
TEST_P(Math, ExhaustiveFloatIsWithinPromisedUlps) {
  check_floats(GetParam(), 31);
}

// Every exponent with 500 fractions each, and a dense sweep where the functions bend.
TEST_P(Math, DoubleIsWithinPromisedUlps) {
  double worst = 0, at = 0;
  const auto check = [&](double x) {
    const double error = ulps(GetParam().f64(x), GetParam().exact(x));
    if (error > worst) worst = error, at = x;
  };
  constexpr std::uint64_t kStride = (1ull << 52) / 500 + 977;
  for (std::uint64_t bits = 0; bits < (0x7ffull << 52); bits += kStride) {
    check(std::bit_cast<double>(bits));
    check(-std::bit_cast<double>(bits));
  }
  for (int i = -100'000; i <= 100'000; ++i) check(i * 8.1484e-5);
  EXPECT_LE(worst, GetParam().max_ulps_f64) << "at " << at;
  RecordProperty("ulps", std::to_string(worst));
}

template <class T> void check_edges(const Function& function, T (*f)(T)) {
  using L = std::numeric_limits<T>;
  for (const T x : {T(0), L::denorm_min(), L::min(), L::max(), L::infinity(), T(1), T(0.625), T(88.7228394),
                    T(88.722847), T(-87.3365479), T(-103.97), T(-104.1), T(709.782712893384),
                    T(709.782712893385), T(-708.39641853226), T(-745.13), T(-745.2)}) {
    for (const T signed_x : {x, -x}) {
      const T got = f(signed_x);
      EXPECT_LE(ulps(got, function.exact(signed_x)), 2) << function.name << "(" << signed_x << ") = " << got;
    }
  }
  EXPECT_TRUE(std::isnan(f(L::quiet_NaN()))) << function.name;
}

TEST_P(Math, EdgesAreThoseOfTheStandardLibrary) {
  check_edges(GetParam(), GetParam().f32);
  check_edges(GetParam(), GetParam().f64);
}

INSTANTIATE_TEST_SUITE_P(All, Math, testing::ValuesIn(kFunctions),
                         [](const auto& test) { return std::string(test.param.name); });

// Bases of every exponent, and exponents that make results of every size.
template <class T> double worst_pow(double most_exponent, double most_size) {
  double worst = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double first = std::fmod(0.61803398875 * i, 2.0) - 1,
                 second = std::fmod(0.41421356237 * i, 2.0) - 1;
    const T x = static_cast<T>(std::exp2(first * most_exponent));
    const T y = static_cast<T>(second * most_size / std::max(std::abs(std::log2(x)), T(1e-3)));
    const double error =
        ulps(math::pow(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y)));
    worst = std::max(worst, error);
  }
  return worst;
}

TEST(MathPow, IsWithinPromisedUlps) {
  EXPECT_LE(worst_pow<float>(1, 20), 2);
  EXPECT_LE(worst_pow<float>(0.5, 126), 3);
  EXPECT_LE(worst_pow<float>(140, 150), 3);
  EXPECT_LE(worst_pow<double>(1, 20), 2);
  EXPECT_LE(worst_pow<double>(0.5, 1022), 8);
  EXPECT_LE(worst_pow<double>(1000, 1074), 8);
}

template <class T> void check_pow_edges() {
  using L = std::numeric_limits<T>;
  const std::vector<T> values = [] {
    std::vector<T> all{L::infinity(), L::quiet_NaN(), L::min(), L::denorm_min(), L::max()};
    for (const double x : {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 1.5, 1e10, 1e15, 9007199254740993.0})
      all.push_back(T(x));
    for (const T x : {L::epsilon(), -L::epsilon()}) all.push_back(1 + x);
    return all;
  }();
  for (const T a : values) {
    for (const T b : values) {
      for (const T x : {a, -a}) {
        for (const T y : {b, -b}) {
          const T got = math::pow(x, y), standard = std::pow(x, y);
          EXPECT_LE(ulps(got, std::pow(static_cast<long double>(x), static_cast<long double>(y))), 8)
              << x << "^" << y << " = " << got;
          EXPECT_TRUE(std::isnan(standard) || std::signbit(got) == std::signbit(standard)) << x << "^" << y;
        }
      }
    }
  }
}

TEST(MathPow, EdgesAreThoseOfTheStandardLibrary) {
  check_pow_edges<float>();
  check_pow_edges<double>();
}

TEST(MathSigns, ZeroKeepsItsSign) {
  EXPECT_TRUE(std::signbit(math::tanh(-0.0f)));
  EXPECT_TRUE(std::signbit(math::erf(-0.0)));
  EXPECT_FALSE(std::signbit(math::tanh(0.0)));
}

// The AVX-512 and the baseline compilation of a loop, and a plain scalar call, agree in every bit.
template <class T> void check_bits() {
  std::vector<T> x, vector, scalar;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<T>(i) * T(0.0317));
  vector.resize(x.size());
  const auto each = [&](auto f) {
    auto loop = [&] {
      for (std::size_t i = 0; i < x.size(); ++i) vector[i] = f(x[i]);
    };
    cpu::vectorize(loop);
    scalar.clear();
    for (const T value : x) {
      volatile T opaque = value;
      scalar.push_back(f(opaque));
    }
    using Bits = typename math::detail::Format<T>::Bits;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(scalar[i])) continue;  // the sign of NaN is unspecified
      ASSERT_EQ(std::bit_cast<Bits>(vector[i]), std::bit_cast<Bits>(scalar[i])) << "at " << x[i];
    }
  };
  each([](T v) { return math::exp(v); });
  each([](T v) { return math::log(v); });
  each([](T v) { return math::tanh(v); });
  each([](T v) { return math::erf(v); });
  each([](T v) { return math::sigmoid(v); });
  each([](T v) { return math::expm1(v); });
  each([](T v) { return math::log1p(v); });
  each([](T v) { return math::pow(v, T(3)); });
  each([](T v) { return math::pow(std::fabs(v), T(-1.7)); });
}

TEST(MathBits, DoNotDependOnTheVectorWidth) {
  check_bits<float>();
  check_bits<double>();
}

// FNV-1a of the results of every function, but for NaN.
template <class T> std::uint64_t hash_of_results() {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](T value) {
    if (std::isnan(value)) return;
    for (const std::byte byte : std::bit_cast<std::array<std::byte, sizeof(T)>>(value))
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  };
  for (int i = -4000; i <= 4000; ++i) {
    const T x = static_cast<T>(i) * T(0.0317);
    for (const T y : {math::exp(x), math::log(x), math::tanh(x), math::erf(x), math::sigmoid(x),
                      math::expm1(x), math::log1p(x), math::pow(x, T(3)), math::pow(std::fabs(x), T(-1.7))})
      add(y);
  }
  return hash;
}

// Recorded on x86-64; the lane aarch64 compares.
TEST(MathBits, AreThoseOfOtherProcessors) {
  EXPECT_EQ(hash_of_results<float>(), 0x9c77c07eda7c1ecdu);
  EXPECT_EQ(hash_of_results<double>(), 0x568f23aa372e77aeu);
}

}  // namespace athanor::math_test
