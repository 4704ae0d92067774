#include "autograd/elementwise.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/scalar_ops.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "tests/support/compare.h"

namespace athanor::elementwise_test {

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// Values in (0.1, 2.1) or (-2.1, 2.1), none near a kink, that every floating dtype holds about as well.
Tensor values(const Shape& shape, DType dtype, bool positive, int seed = 1) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double v = 0.1 + 2.0 * std::fmod(0.61803398875 * static_cast<double>(i + seed), 1.0);
    x.data<double>()[i] = !positive && (i + seed) % 3 == 0 ? -v : v;
  }
  const Tensor y = Tensor::empty(shape, {dtype, kCpu});
  kernels::copy(cpu_context(), x, y);
  return y;
}

// The transpose of a [columns, rows] tensor, as a view.
Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.shape()[1], x.shape()[0]}, {x.strides()[1], x.strides()[0]}, 0);
}

// Every second element of a row.
Tensor every_second(const Tensor& x) {
  return x.view_as_strided({x.numel() / 2}, {2}, 1);
}

// Unary ops, each of ATH_UNARY_OPS ------------------------------------------------------------------------

struct Unary {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*forward)(double);
  double (*backward)(double, double);
  bool from_output;
  bool positive;  // NaN below 0: tested above it
};

template <class Op> Unary unary_case(const char* name, Tensor (*op)(const Tensor&)) {
  return {name,
          op,
          Op::template forward<double>,
          Op::template backward<double>,
          Op::kFromOutput,
          std::isnan(Op::forward(-1.0))};
}

const Unary kUnary[] = {
#define ATH_CASE(Op, name) unary_case<kernels::Op>(#name, name),
    ATH_UNARY_OPS(ATH_CASE)
#undef ATH_CASE
};

class UnaryOp : public testing::TestWithParam<Unary> {
 protected:
  void check(const Tensor& x) {
    require_grad(x);
    const Tensor y = GetParam().op(x);
    const Tensor dy = values(x.shape(), x.dtype(), false, 7);
    backward(y, dy);

    std::vector<double> expected = x.to_vector(), expected_dx = dy.to_vector();
    const std::vector<double> saved = GetParam().from_output ? y.to_vector() : expected;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = GetParam().forward(expected[i]);
      expected_dx[i] = GetParam().backward(saved[i], expected_dx[i]);
    }
    ASSERT_EQ(y.shape(), x.shape());
    const double tolerance = 4 * test::epsilon_of(x.dtype());
    EXPECT_TRUE(test::close(y, expected, tolerance)) << fmt::format("{} {}", x.dtype(), x.shape());
    EXPECT_TRUE(test::close(grad_of(x), expected_dx, tolerance))
        << fmt::format("{} {}", x.dtype(), x.shape());
  }
  Tensor make(const Shape& shape, DType dtype) const { return values(shape, dtype, GetParam().positive); }
};

TEST_P(UnaryOp, MatchesDoubleReference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 0, 2}, Shape{5, 33}, Shape{1000}})
      check(make(shape, dtype));
  }
  check(make({70'001}, DType::f32));  // several threads
}

TEST_P(UnaryOp, TakesStridedInput) {
  for (const DType dtype : kFloating) {
    check(transposed(make({9, 17}, dtype)));
    check(every_second(make({40}, dtype)));
  }
}

TEST_P(UnaryOp, TakesBroadcastGradient) {
  const Tensor x = make({3, 4}, DType::f64);
  require_grad(x);
  const Tensor one = values({1}, DType::f64, true);
  backward(GetParam().op(x), one.view_as_strided({3, 4}, {0, 0}, 0));
  const Tensor dense = values({1}, DType::f64, true);
  const Tensor again = make({3, 4}, DType::f64);
  require_grad(again);
  backward(GetParam().op(again), Tensor::from(std::vector<double>(12, dense.item()), {3, 4}));
  EXPECT_TRUE(test::same_bits(grad_of(x), grad_of(again)));
}

TEST_P(UnaryOp, Gradcheck) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{6, 5}}) {
    const Tensor x = make(shape, DType::f64);
    require_grad(x);
    gradcheck([](std::span<const Tensor> in) { return GetParam().op(in[0]); }, std::array{x});
  }
}

TEST_P(UnaryOp, KeepsNaN) {
  const Tensor x = Tensor::from(std::vector<float>(20, NAN), {20});
  for (const double y : GetParam().op(x).to_vector()) EXPECT_TRUE(std::isnan(y));
}

INSTANTIATE_TEST_SUITE_P(All, UnaryOp, testing::ValuesIn(kUnary),
                         [](const auto& test) { return std::string(test.param.name); });

// The reference above is the functor in double, so the formulas are held against known values here.
TEST(Unary, FormulasGiveKnownValues) {
  const auto at = [](Tensor (*op)(const Tensor&), double x) {
    return op(Tensor::from(std::vector<double>{x}, {1})).item();
  };
  EXPECT_EQ(at(relu, -2), 0);
  EXPECT_EQ(at(relu, 3), 3);
  EXPECT_NEAR(at(gelu, 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(at(gelu, -1), -0.15865525393145705, 1e-15);
  EXPECT_NEAR(at(gelu_tanh, 1), 0.8411919906082768, 1e-14);
  EXPECT_NEAR(at(gelu_tanh, -2), -0.04540230591222494, 1e-14);
  EXPECT_NEAR(at(silu, 1), 0.7310585786300049, 1e-15);
  EXPECT_EQ(at(hardswish, -1.5), -0.375);
  EXPECT_EQ(at(hardswish, 1.5), 1.125);
  EXPECT_EQ(at(hardsigmoid, 1.5), 0.75);
  EXPECT_NEAR(at(mish, -1.5), -0.29809974216680674, 1e-16);
  EXPECT_NEAR(at(mish, 4), 3.9974128069762385, 1e-15);
  EXPECT_NEAR(at(sigmoid, 2), 0.8807970779778823, 1e-15);
  EXPECT_NEAR(at(tanh, 0.5), 0.46211715726000973, 1e-15);
  EXPECT_NEAR(at(exp, 1), 2.718281828459045, 1e-15);
  EXPECT_NEAR(at(log, 10), 2.302585092994046, 1e-15);
  EXPECT_EQ(at(sqrt, 9), 3);
  EXPECT_EQ(at(rsqrt, 16), 0.25);
  EXPECT_EQ(at(square, -3), 9);
  EXPECT_EQ(at(abs, -3), 3);
}

TEST(Unary, DerivativeAtTheKinkIsZero) {
  for (Tensor (*op)(const Tensor&) : {relu, abs}) {
    const Tensor x = Tensor::zeros({3});
    require_grad(x);
    backward(op(x), Tensor::from(std::vector<float>{1, 2, 3}, {3}));
    EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 0, 0}));
  }
}

// Far out, an activation is the identity or 0, and so is its derivative: no product of 0 and infinity.
TEST(Unary, ActivationsAreFlatOrStraightFarOut) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const double most = dtype == DType::f16 ? 6e4 : dtype == DType::f64 ? 1e300 : 3e38;
    for (const double size : {1e3, 1e4, most}) {
      for (Tensor (*op)(const Tensor&) :
           {relu, gelu, gelu_tanh, silu, hardswish, hardsigmoid, mish, sigmoid, tanh}) {
        const bool bounded = op == hardsigmoid || op == sigmoid || op == tanh;
        const Tensor exact = Tensor::from(std::vector<double>{-size, size}, {2});
        const Tensor x = Tensor::empty({2}, {dtype, kCpu}), one = Tensor::empty({2}, {dtype, kCpu});
        kernels::copy(cpu_context(), exact, x), kernels::fill(cpu_context(), one, 1);
        require_grad(x);
        backward(op(x), one);
        EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, bounded ? 0.0 : 1.0}))
            << name_of(dtype) << " " << size;
      }
    }
  }
}

// PyTorch's: the gradient times sign(x), and sign(NaN) is 0.
TEST(Unary, AbsOfNaNPassesNoGradient) {
  const Tensor x = Tensor::from(std::vector<float>{NAN, -NAN, -2, 2}, {4});
  require_grad(x);
  backward(abs(x), Tensor::from(std::vector<float>{5, 6, 7, 8}, {4}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 0, -7, 8}));
}

// What PyTorch 2.15 has at kinks, infinities and NaN, as values and derivatives.
TEST(Unary, EdgesAreThoseOfPyTorch) {
  const std::vector<double> x{-INFINITY, -3, -0.0, 0, 3, INFINITY, NAN};
  const auto expect = [&](Tensor (*op)(const Tensor&), const std::vector<double>& y,
                          const std::vector<double>& slope) {
    const Tensor leaf = Tensor::from(x, {7});
    require_grad(leaf);
    const Tensor result = op(leaf);
    backward(result, Tensor::from(std::vector<double>(7, 1), {7}));
    const std::vector<double> got = result.to_vector(), gradient = grad_of(leaf).to_vector();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isnan(y[i]) ? std::isnan(got[i]) : std::abs(got[i] - y[i]) < 1e-15 || got[i] == y[i])
          << x[i] << " " << got[i];
      EXPECT_TRUE(std::isnan(slope[i]) ? std::isnan(gradient[i])
                                       : std::abs(gradient[i] - slope[i]) < 1e-15 || gradient[i] == slope[i])
          << "slope at " << x[i] << " is " << gradient[i];
      EXPECT_TRUE(std::isnan(y[i]) || std::signbit(got[i]) == std::signbit(y[i])) << x[i];
    }
  };
  const double inf = INFINITY, sixth = 1.0 / 6, root = 0.5773502691896258;
  // PyTorch's vectors give NaN at NaN, as here, and what is left after them the gradient itself.
  expect(hardswish, {NAN, -0.0, -0.0, 0, 3, inf, NAN}, {0, 0, 0.5, 0.5, 1, 1, NAN});
  expect(hardsigmoid, {0, 0, 0.5, 0.5, 1, 1, NAN}, {0, 0, sixth, sixth, 0, 0, 0});
  expect(mish, {NAN, -0.1456474612756246, -0.0, 0, 2.9865350049679575, inf, NAN},
         {NAN, -0.09339311453232084, 0.6, 0.6, 1.0211069109294435, NAN, NAN});
  expect(rsqrt, {NAN, NAN, -inf, inf, root, 0, NAN}, {NAN, NAN, inf, -inf, -0.09622504486493767, -0.0, NAN});
}

TEST(Unary, RejectsIntegersAndNothing) {
  EXPECT_THROW(relu(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
  EXPECT_THROW(exp(Tensor()), ArgumentError);
}

// Binary ops, each of ATH_BINARY_OPS ----------------------------------------------------------------------

struct Binary {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  double (*forward)(double, double);
};

const Binary kBinary[] = {
#define ATH_CASE(Op, name) {#name, name, kernels::Op::forward<double>},
    ATH_BINARY_OPS(ATH_CASE)
#undef ATH_CASE
};

// Pairs that broadcast: equal, scalars, rows, columns, both ways at once, inner axes, empty.
const std::pair<Shape, Shape> kPairs[] = {
    {{6}, {6}},       {{}, {}},         {{}, {4, 3}},        {{4, 3}, {3}},
    {{4, 3}, {4, 1}}, {{4, 1}, {1, 3}}, {{2, 1, 3}, {5, 1}}, {{2, 3, 4, 5}, {1, 3, 1, 5}},
    {{0}, {1}},       {{3, 0}, {1, 1}}, {{40, 50}, {50}},    {{1, 1, 1}, {2}}};

class BinaryOp : public testing::TestWithParam<Binary> {
 protected:
  static double read(const Tensor& x, const Shape& shape, std::int64_t flat) {
    std::int64_t at = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const std::int64_t k = flat % shape[axis];
      flat /= shape[axis];
      const int own = axis - (shape.rank() - x.rank());
      if (own >= 0 && x.shape()[own] != 1) at += k * x.strides()[own];
    }
    const Tensor element = x.view_as_strided({}, {}, at);
    return element.item();
  }
  void check(const Tensor& a, const Tensor& b) {
    const Tensor y = GetParam().op(a, b);
    const Shape shape = broadcast_shapes(a.shape(), b.shape(), "test");
    ASSERT_EQ(y.shape(), shape);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < shape.numel(); ++i)
      expected.push_back(GetParam().forward(read(a, shape, i), read(b, shape, i)));
    EXPECT_TRUE(test::close(y, expected, test::epsilon_of(a.dtype())))
        << fmt::format("{} {} {}", a.dtype(), a.shape(), b.shape());
  }
};

TEST_P(BinaryOp, BroadcastsLikeTheDoubleReference) {
  for (const DType dtype : kFloating) {
    for (const auto& [first, second] : kPairs) {
      check(values(first, dtype, true), values(second, dtype, false, 5));
      check(values(second, dtype, true), values(first, dtype, false, 5));
    }
  }
}

TEST_P(BinaryOp, TakesStridedInput) {
  const Tensor a = values({7, 5}, DType::f32, true), b = values({5, 7}, DType::f32, true, 3);
  check(transposed(a), b);
  check(b, transposed(a));
  check(transposed(a), transposed(a));
  check(every_second(values({20}, DType::f16, true)), values({10}, DType::f16, true));
}

TEST_P(BinaryOp, Gradcheck) {
  for (const auto& [first, second] : kPairs) {
    if (first.numel() * second.numel() > 3000) continue;
    // No value of a is one of b: there floor_divide and remainder jump.
    const Tensor a = values(first, DType::f64, true), b = values(second, DType::f64, true, 1005);
    require_grad(a), require_grad(b);
    gradcheck([](std::span<const Tensor> in) { return GetParam().op(in[0], in[1]); }, std::array{a, b});
  }
}

TEST_P(BinaryOp, GradientOfABroadcastOperandHasItsShapeInEveryDtype) {
  for (const DType dtype : kFloating) {
    const Tensor a = values({4, 3}, dtype, true), b = values({3}, dtype, true, 5);
    const Tensor a64 = values({4, 3}, DType::f64, true), b64 = values({3}, DType::f64, true, 5);
    kernels::copy(cpu_context(), a, a64);
    kernels::copy(cpu_context(), b, b64);
    for (const Tensor& x : {a, b, a64, b64}) require_grad(x);
    backward(GetParam().op(a, b), values({4, 3}, dtype, true, 9));
    const Tensor dy64 = values({4, 3}, DType::f64, true, 9);
    kernels::copy(cpu_context(), values({4, 3}, dtype, true, 9), dy64);
    backward(GetParam().op(a64, b64), dy64);
    EXPECT_EQ(grad_of(b).shape(), b.shape());
    EXPECT_TRUE(test::close(grad_of(a), grad_of(a64).to_vector(), 8 * test::epsilon_of(dtype)));
    EXPECT_TRUE(test::close(grad_of(b), grad_of(b64).to_vector(), 8 * test::epsilon_of(dtype)));
  }
}

TEST_P(BinaryOp, SameTensorTwiceGetsBothGradients) {
  const Tensor a = values({5}, DType::f64, true);
  require_grad(a);
  gradcheck([](std::span<const Tensor> in) { return GetParam().op(in[0], in[0]); }, std::array{a});
}

TEST_P(BinaryOp, OneOperandWithoutGradient) {
  const Tensor a = values({2, 3}, DType::f64, true), b = values({3}, DType::f64, true, 5);
  require_grad(a);
  gradcheck([&](std::span<const Tensor> in) { return GetParam().op(in[0], b); }, std::array{a});
  gradcheck([&](std::span<const Tensor> in) { return GetParam().op(b, in[0]); }, std::array{a});
}

TEST_P(BinaryOp, RejectsShapesAndDtypesThatDoNotFit) {
  const auto op = GetParam().op;
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({2}, {DType::f64, kCpu})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}, {DType::boolean, kCpu}), Tensor::zeros({2}, {DType::boolean, kCpu})),
               ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor()), ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(All, BinaryOp, testing::ValuesIn(kBinary),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Binary, SavesOnlyWhatAGradientNeeds) {
  const Tensor weight = values({4}, DType::f32, true), constant = values({4}, DType::f32, true);
  require_grad(weight);
  const TapeCounters before = tape_counters();
  const Tensor y = mul(weight, constant);
  constant.bump_version();
  EXPECT_THROW(backward(y, values({4}, DType::f32, true)), ArgumentError);
  const Tensor z = mul(weight, constant);
  weight.bump_version();  // dL/dweight does not need weight
  EXPECT_NO_THROW(backward(z, values({4}, DType::f32, true)));
  EXPECT_EQ(tape_counters().nodes, before.nodes + 2);
}

// Values and gradients of op(a, b) against lists: NaN is equal to NaN.
void expect_pairs(Tensor (*op)(const Tensor&, const Tensor&), const std::vector<double>& left,
                  const std::vector<double>& right, const std::vector<double>& y,
                  const std::vector<double>& da, const std::vector<double>& db) {
  const Shape shape{static_cast<std::int64_t>(left.size())};
  const Tensor a = Tensor::from(left, shape), b = Tensor::from(right, shape);
  require_grad(a), require_grad(b);
  const Tensor result = op(a, b);
  backward(result, Tensor::from(std::vector<double>(left.size(), 1), shape));
  const std::vector<double> got[] = {result.to_vector(), grad_of(a).to_vector(), grad_of(b).to_vector()};
  const std::vector<double>* expected[] = {&y, &da, &db};
  for (int k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double value = got[k][i], wanted = (*expected[k])[i];
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(value)
                                     : value == wanted || std::abs(value - wanted) < 1e-14)
          << "result " << k << " of (" << left[i] << ", " << right[i] << ") is " << value;
    }
  }
}

// The lists are PyTorch 2.15's.
TEST(Binary, EqualOperandsShareTheGradientAndNaNPassesIt) {
  const double inf = INFINITY;
  const std::vector<double> a{1, 2, 3, NAN, 1, NAN, inf, -inf}, b{2, 2, 1, 1, NAN, NAN, inf, -inf};
  expect_pairs(maximum, a, b, {2, 2, 3, NAN, NAN, NAN, inf, -inf}, {0, 0.5, 1, 1, 1, 1, 0.5, 0.5},
               {1, 0.5, 0, 1, 1, 1, 0.5, 0.5});
  expect_pairs(minimum, a, b, {1, 2, 1, NAN, NAN, NAN, inf, -inf}, {1, 0.5, 0, 1, 1, 1, 0.5, 0.5},
               {0, 0.5, 1, 1, 1, 1, 0.5, 0.5});
}

TEST(Binary, TheDivisorsGradientIsZeroWhereTheQuotientIs) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  expect_pairs(div, {0, 0, 6, 0}, {tiny, 2, 3, 0}, {0, 0, 2, NAN}, {INFINITY, 0.5, 1.0 / 3, INFINITY},
               {0, 0, -2.0 / 3, NAN});
}

TEST(Binary, FloorDivideAndRemainderHaveTheSignsOfPyTorch) {
  const double inf = INFINITY, nan = NAN;
  const std::vector<double> a{7, -7, 7, -7, 6, -6, 1, -1, 5, 0, inf, NAN, 0.3, 1, -1};
  const std::vector<double> b{2, 2, -2, -2, 3, 3, inf, inf, 0, 0, 2, 1, 0.1, -inf, 0};
  const std::vector<double> zeros(a.size(), 0), ones(a.size(), 1);
  expect_pairs(floor_divide, a, b, {3, -4, -4, 3, 2, -2, 0, -1, inf, nan, nan, nan, 2, -1, -inf}, zeros,
               zeros);
  expect_pairs(remainder, a, b, {1, 1, -1, -1, 0, 0, 1, inf, nan, nan, nan, nan, 0.1, -inf, nan}, ones,
               {-3, 4, 4, -3, -2, 2, 0, 1, -inf, nan, nan, nan, -2, 1, inf});
}

// Where a quotient or a power alone overflows, and its product with the other factors does not.
TEST(Binary, GradientsDoNotOverflowBeforeTheirLastFactor) {
  const auto expect = [](Tensor (*op)(const Tensor&, const Tensor&), double a, double b, double dy, double da,
                         double db) {
    const Tensor left = full({1}, a, {DType::f64}), right = full({1}, b, {DType::f64});
    require_grad(left);
    require_grad(right);
    backward(op(left, right), full({1}, dy, {DType::f64}));
    EXPECT_NEAR(grad_of(left).item() / da, 1, 1e-12) << a << " " << b;
    EXPECT_NEAR(grad_of(right).item() / db, 1, 1e-12) << a << " " << b;
  };
  expect(div, 1.5e308, 0.5, 0.125, 0.25, -7.5e307);
  expect(div, -1e-300, 1e-10, 1e-5, 1e5, 1e-285);
  const double tiny = std::numeric_limits<double>::denorm_min();
  expect(pow, tiny, 0x1p-64, 1, 0x1p1010, std::log(tiny));
  const double power = std::pow(1.5, 1750);
  expect(pow, 1.5, 1751, 0x1p-12, power * (1751 * 0x1p-12), power * (1.5 * std::log(1.5) * 0x1p-12));
}

// The quotient of floats is rounded, to the next integer now and then; its floor must not be.
TEST(Binary, FloorDivideDoesNotRoundUp) {
  const Tensor a = Tensor::from(std::vector<float>{0.3f, 1, -1}, {3});
  EXPECT_EQ(floor_divide(a, 0.1).to_vector(), (std::vector<double>{3, 9, -10}));
  EXPECT_EQ(remainder(Tensor::from(std::vector<float>{6, -6, 5}, {3}), -4).to_vector(),
            (std::vector<double>{-2, -2, -3}));
}

TEST(Binary, PowHasTheEdgesOfPyTorch) {
  const double inf = INFINITY;
  expect_pairs(pow, {0, -0.0, 0, 0, -2, -2, -2, 2, 1, NAN, inf, -inf, 0, -1},
               {0, 0, 2, -1, 2, 3, 0.5, 3, NAN, 0, 2, 3, 1, inf},
               {1, 1, 0, inf, 4, -8, NAN, 8, 1, 1, inf, -inf, 0, 1},
               {0, 0, 0, -inf, -4, 12, NAN, 12, NAN, 0, inf, inf, 1, inf},
               {0, 0, 0, -inf, NAN, NAN, NAN, 5.545177444479562, 0, NAN, inf, NAN, 0, NAN});
}

TEST(Affine, ScalesAndShiftsInOnePass) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, -3}, {3});
  require_grad(x);
  const Tensor y = affine(x, 2, 0.5);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{2.5, 4.5, -5.5}));
  backward(y, Tensor::from(std::vector<float>{1, 10, 100}, {3}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{2, 20, 200}));
  EXPECT_EQ((-x).to_vector(), (std::vector<double>{-1, -2, 3}));
}

TEST(Affine, Gradcheck) {
  const Tensor x = values({3, 2}, DType::f64, false);
  require_grad(x);
  gradcheck([](std::span<const Tensor> in) { return affine(in[0], -1.5, 4); }, std::array{x});
}

TEST(Elementwise, BitsDoNotDependOnThreads) {
  const Tensor x = values({100'003}, DType::f32, false), row = values({100'003}, DType::f32, true, 3);
  const int threads = cpu_context().threads();
  cpu_context().set_threads(1);
  const Tensor one = div(gelu(x), row);
  cpu_context().set_threads(3);
  const Tensor three = div(gelu(x), row);
  cpu_context().set_threads(threads);
  EXPECT_TRUE(test::same_bits(one, three));
}

}  // namespace athanor::elementwise_test
