// Arithmetic on integer tensors.
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/scalar_ops.h"
#include "autograd/shape.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"

namespace athanor::integers_test {

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
  expect(floor_divide(a, b), {3, static_cast<T>(low / 2), static_cast<T>(high / 2), 1});
  expect(remainder(a, b), {1, 0, 1, 1});
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

using Binary = Tensor (*)(const Tensor&, const Tensor&);

// By Python's rules: the quotient is rounded down, the remainder has the divisor's sign.
template <class T> void check_floors() {
  const T low = std::numeric_limits<T>::min();
  const Tensor a = Tensor::from(std::vector<T>{7, -7, 7, -7, -6, low}, {6}),
               b = Tensor::from(std::vector<T>{2, 2, -2, -2, 3, -1}, {6});
  EXPECT_TRUE(test::same_bits(floor_divide(a, b), Tensor::from(std::vector<T>{3, -4, -4, 3, -2, low}, {6})));
  EXPECT_TRUE(test::same_bits(remainder(a, b), Tensor::from(std::vector<T>{1, 1, -1, -1, 0, 0}, {6})));
  EXPECT_TRUE(test::same_bits(floor_divide(a, -2), floor_divide(a, Tensor::from(std::vector<T>{-2}, {1}))));
}

TEST(Integers, AreDividedByTheRulesOfPython) {
  check_floors<std::int64_t>();
  check_floors<std::int32_t>();
}

TEST(Integers, AreNotDividedByZero) {
  const Tensor a = Tensor::from(std::vector<std::int32_t>{1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from(std::vector<std::int32_t>{1, 2, 0, 4}, {2, 2});
  for (const Binary op : {Binary{floor_divide}, Binary{remainder}}) {
    EXPECT_ERROR(ArgumentError, op(a, b.view_as_strided({2, 2}, {1, 2}, 0)), "0", "1", "[2, 2]");
    EXPECT_NO_THROW(op(Tensor::zeros({0}, {DType::i32, kCpu}), Tensor::zeros({1}, {DType::i32, kCpu})));
  }
  EXPECT_THROW(remainder(a, 0), ArgumentError);
  EXPECT_THROW(remainder(a, 1.5), ArgumentError);
}

TEST(Integers, AreNeitherDividedNorMixed) {
  const Tensor i = Tensor::zeros({2}, {DType::i32, kCpu}), f = Tensor::zeros({2});
  EXPECT_REFUSED(div(i, i), "i32", "cast()");
  EXPECT_REFUSED(add(i, f), "i32", "f32", "cast(a, DType::f32)");
  EXPECT_REFUSED(add(cast(f, DType::boolean), cast(f, DType::boolean)), "bool");
  EXPECT_THROW(pow(i, i), ArgumentError);
  EXPECT_THROW(neg(Tensor()), ArgumentError);
}

}  // namespace athanor::integers_test
