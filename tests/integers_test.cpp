// Arithmetic on integer tensors.
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "tests/support/compare.h"

namespace athanor {
namespace {

// Integers: the values, and what wraps.
template <class T> void check_integers() {
  const T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const Tensor a = Tensor::from(std::vector<T>{7, low, high, 3}, {4}),
               b = Tensor::from(std::vector<T>{2}, {1});
  const auto expect = [](const Tensor& y, const std::vector<T>& values) {
    EXPECT_TRUE(test::same_bits(y, Tensor::from(values, {static_cast<std::int64_t>(values.size())})));
  };
  expect(add(a, b), {9, static_cast<T>(low + 2), static_cast<T>(low + 1), 5});
  expect(sub(a, b), {5, static_cast<T>(high - 1), static_cast<T>(high - 2), 1});
  expect(mul(a, b), {14, 0, static_cast<T>(-2), 6});
  expect(maximum(a, b), {7, std::max<T>(low, 2), high, 3});
  expect(minimum(a, b), {2, std::min<T>(low, 2), 2, 2});
  expect(-b, {static_cast<T>(-2)});
  const T minus = static_cast<T>(-5);
  expect(abs(Tensor::from(std::vector<T>{minus, low}, {2})), {std::is_signed_v<T> ? T(5) : minus, low});
  const Tensor square = Tensor::from(std::vector<T>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor turned = square.view_as_strided({3, 2}, {1, 3}, 0);
  EXPECT_EQ(add(turned, b).to_vector(), (std::vector<double>{3, 6, 4, 7, 5, 8}));
  EXPECT_EQ(abs(turned).to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_FALSE(add(a, b).requires_grad());
}

TEST(Integers, AreAddedSubtractedAndMultiplied) {
  check_integers<std::int64_t>();
  check_integers<std::int32_t>();
  check_integers<std::uint8_t>();
}

TEST(Integers, AreNeitherDividedNorMixed) {
  const Tensor i = Tensor::zeros({2}, {DType::i32, kCpu}), f = Tensor::zeros({2});
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_NE(message([&] { div(i, i); }).find("div: tensors must be floating, but the first is i32: cast()"),
            std::string::npos);
  EXPECT_NE(message([&] { add(i, f); }).find("must have one dtype and device (see cast()"),
            std::string::npos);
  EXPECT_NE(message([&] {
              add(cast(f, DType::boolean), cast(f, DType::boolean));
            }).find("add: tensor must hold numbers, but got bool"),
            std::string::npos);
  EXPECT_THROW(pow(i, i), ArgumentError);
  EXPECT_THROW(neg(Tensor()), ArgumentError);
}

}  // namespace
}  // namespace athanor
