#include "autograd/scalar_ops.h"
#include "kernels/cpu/context.h"
#include "kernels/elementwise_ops.h"
#include "tests/support/ops.h"

// Ops of one tensor: each of ATH_UNARY_OPS, and those that are told numbers, too.

namespace athanor::unary_test {

using test::In;

/// An op, and the formulas it is held against: functors in double, or the C library's.
struct Unary {
  std::string name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> forward;
  std::function<double(double saved, double dy)> backward;
  bool from_output = false;  ///< whether what is saved is the result
  bool positive = false;     ///< NaN below 0: tested above it
};

Unary scalar_case(const char* name, std::function<Tensor(const Tensor&)> op,
                  std::function<double(double)> forward, std::function<double(double)> slope,
                  bool positive = false) {
  return {name,  std::move(op), std::move(forward), [slope](double x, double dy) { return dy * slope(x); },
          false, positive};
}

std::vector<Unary> unary_cases() {
  return {
#define ATH_CASE(Op, name)                  \
  {#name,                                   \
   [](const Tensor& x) { return name(x); }, \
   kernels::Op::forward<double>,            \
   kernels::Op::backward<double>,           \
   kernels::Op::kFromOutput,                \
   std::isnan(kernels::Op::forward(-1.0))},
      ATH_UNARY_OPS(ATH_CASE)
#undef ATH_CASE

          scalar_case(
              "leaky_relu", [](const Tensor& x) { return leaky_relu(x); },
              [](double x) { return std::max(x, 0.0) + 0.01 * std::min(x, 0.0); },
              [](double x) { return x > 0 ? 1 : 0.01; }),
      scalar_case(
          "leaky_relu_steep", [](const Tensor& x) { return leaky_relu(x, 0.25); },
          [](double x) { return x > 0 ? x : 0.25 * x; }, [](double x) { return x > 0 ? 1 : 0.25; }),
      scalar_case(
          "elu", [](const Tensor& x) { return elu(x); }, [](double x) { return x > 0 ? x : std::expm1(x); },
          [](double x) { return x > 0 ? 1 : std::exp(x); }),
      scalar_case(
          "elu_alpha", [](const Tensor& x) { return elu(x, 1.5); },
          [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); },
          [](double x) { return x > 0 ? 1 : 1.5 * std::exp(x); }),
      scalar_case(
          "softplus", [](const Tensor& x) { return softplus(x); },
          [](double x) { return std::log1p(std::exp(x)); }, [](double x) { return 1 / (1 + std::exp(-x)); }),
      scalar_case(
          "softplus_beta", [](const Tensor& x) { return softplus(x, 2, 3); },
          [](double x) { return 2 * x > 3 ? x : std::log1p(std::exp(2 * x)) / 2; },
          [](double x) { return 2 * x > 3 ? 1 : 1 / (1 + std::exp(-2 * x)); }),
      scalar_case(
          "clamp", [](const Tensor& x) { return clamp(x, -0.75, 1.25); },
          [](double x) { return std::min(std::max(x, -0.75), 1.25); },
          [](double x) { return x > -0.75 && x < 1.25 ? 1 : 0; }),
      scalar_case(
          "clamp_low", [](const Tensor& x) { return clamp(x, -0.75); },
          [](double x) { return std::max(x, -0.75); }, [](double x) { return x > -0.75 ? 1 : 0; }),
      scalar_case(
          "clamp_high", [](const Tensor& x) { return clamp(x, std::nullopt, 1.25); },
          [](double x) { return std::min(x, 1.25); }, [](double x) { return x < 1.25 ? 1 : 0; }),
      scalar_case(
          "pow_cubed", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; },
          [](double x) { return 3 * x * x; }),
      scalar_case(
          "pow_of_zero", [](const Tensor& x) { return pow(x, 0); }, [](double) { return 1; },
          [](double) { return 0; }),
      scalar_case(
          "pow_inverse", [](const Tensor& x) { return pow(x, -1); }, [](double x) { return 1 / x; },
          [](double x) { return -1 / (x * x); }),
      scalar_case(
          "pow_fraction", [](const Tensor& x) { return pow(x, 1.5); },
          [](double x) { return x * std::sqrt(x); }, [](double x) { return 1.5 * std::sqrt(x); }, true),
  };
}

class UnaryOp : public testing::TestWithParam<Unary> {
 protected:
  void check(const Tensor& x) {
    require_grad(x);
    const Tensor y = GetParam().op(x), dy = test::unlike_values(x.shape(), x.dtype(), false, 7);
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
  Tensor make(const Shape& shape, DType dtype) const {
    return test::unlike_values(shape, dtype, GetParam().positive);
  }
};

TEST_P(UnaryOp, MatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 0, 2}, Shape{5, 33}, Shape{1000}})
      check(make(shape, dtype));
    check(transpose(make({9, 17}, dtype), 0, 1).detach());
    check(make({40}, dtype).view_as_strided({20}, {2}, 1));
  }
  check(make({70'001}, DType::f32));  // several threads
}

TEST_P(UnaryOp, TakesBroadcastGradient) {
  const auto gradient = [&](const Tensor& dy) {
    return test::results_of([](In in) { return GetParam().op(in[0]); }, {make({3, 4}, DType::f64)},
                            [&](const Tensor&) { return dy; })[1];
  };
  const Tensor one = test::unlike_values({1}, DType::f64, true).view_as_strided({3, 4}, {0, 0}, 0);
  EXPECT_TRUE(test::same_bits(gradient(one), gradient(contiguous(one))));
}

TEST_P(UnaryOp, Gradcheck) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{6, 5}})
    test::check_gradients([](In in) { return GetParam().op(in[0]); }, {make(shape, DType::f64)});
}

TEST_P(UnaryOp, KeepsNaN) {
  if (GetParam().name == "pow_of_zero") return;
  const Tensor x = Tensor::from(std::vector<float>(20, NAN), {20});
  for (const double y : GetParam().op(x).to_vector()) EXPECT_TRUE(std::isnan(y));
}

TEST_P(UnaryOp, TakesNoTruthNorNothing) {
  EXPECT_THROW(GetParam().op(Tensor::zeros({2}, {DType::boolean, kCpu})), ArgumentError);
  EXPECT_THROW(GetParam().op(Tensor()), ArgumentError);
  const std::string_view name = GetParam().name;
  if (name == "abs" || name == "neg" || name.starts_with("clamp")) return;
  EXPECT_THROW(GetParam().op(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(All, UnaryOp, testing::ValuesIn(unary_cases()),
                         [](const auto& test) { return test.param.name; });

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
  EXPECT_EQ(at(relu6, -2), 0);
  EXPECT_EQ(at(relu6, 3), 3);
  EXPECT_EQ(at(relu6, 7), 6);
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

// Values and derivatives of an op at `x` against lists that PyTorch 2.15 made: NaN is equal to NaN, and -0 is
// not 0.
void expect_at(const std::vector<double>& at, const std::function<Tensor(const Tensor&)>& op,
               const std::vector<double>& y, const std::vector<double>& slope, double absolute = 0) {
  const Shape shape{static_cast<std::int64_t>(at.size())};
  const Tensor x = require_grad(Tensor::from(at, shape)), result = op(x);
  backward(result, Tensor::from(std::vector<double>(at.size(), 1), shape));
  const auto same = [&](double a, double b) {
    if (std::isnan(b)) return std::isnan(a);
    return std::signbit(a) == std::signbit(b) &&
           (a == b || std::abs(a - b) <= std::max(4e-16 * std::abs(b), absolute));
  };
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_TRUE(same(result.to_vector()[i], y[i])) << at[i] << " becomes " << result.to_vector()[i];
    EXPECT_TRUE(same(grad_of(x).to_vector()[i], slope[i]))
        << "the slope at " << at[i] << " is " << grad_of(x).to_vector()[i];
  }
}

TEST(Unary, EdgesAreThoseOfPyTorch) {
  const std::vector<double> x{-INFINITY, -3, -0.0, 0, 3, INFINITY, NAN};
  const double inf = INFINITY, sixth = 1.0 / 6, root = 0.5773502691896258;
  // PyTorch's vectors give NaN at NaN, as here, and what is left after them the gradient itself.
  expect_at(x, hardswish, {NAN, -0.0, -0.0, 0, 3, inf, NAN}, {0, 0, 0.5, 0.5, 1, 1, NAN}, 1e-15);
  expect_at(x, relu6, {0, 0, -0.0, 0, 3, 6, NAN}, {0, 0, 0, 0, 1, 0, 1});
  expect_at(x, hardsigmoid, {0, 0, 0.5, 0.5, 1, 1, NAN}, {0, 0, sixth, sixth, 0, 0, 0}, 1e-15);
  expect_at(x, mish, {NAN, -0.1456474612756246, -0.0, 0, 2.9865350049679575, inf, NAN},
            {NAN, -0.09339311453232084, 0.6, 0.6, 1.0211069109294435, NAN, NAN});
  expect_at(x, rsqrt, {NAN, NAN, -inf, inf, root, 0, NAN},
            {NAN, NAN, inf, -inf, -0.09622504486493767, -0.0, NAN}, 1e-15);
}

TEST(ScalarOps, EdgesAreThoseOfPyTorch) {
  const double inf = INFINITY;
  const std::vector<double> x{-inf, -1e3, -0.0, 0, 25, 1e3, inf, NAN};
  expect_at(x, [](const Tensor& t) { return leaky_relu(t); }, {-inf, -10, -0.0, 0, 25, 1e3, inf, NAN},
            {0.01, 0.01, 0.01, 0.01, 1, 1, 1, 0.01});
  expect_at(x, [](const Tensor& t) { return leaky_relu(t, 0); }, {NAN, -0.0, -0.0, 0, 25, 1e3, inf, NAN},
            {0, 0, 0, 0, 1, 1, 1, 0});
  expect_at(x, [](const Tensor& t) { return elu(t, 2); }, {-2, -2, -0.0, 0, 25, 1e3, inf, NAN},
            {0, 0, 2, 2, 1, 1, 1, NAN});
  const double log2 = 0.6931471805599453;
  expect_at(x, [](const Tensor& t) { return softplus(t); }, {0, 0, log2, log2, 25, 1e3, inf, NAN},
            {0, 0, 0.5, 0.5, 1, 1, 1, NAN});
  expect_at(x, [](const Tensor& t) { return pow(t, 2); }, {inf, 1e6, 0, 0, 625, 1e6, inf, NAN},
            {-inf, -2e3, -0.0, 0, 50, 2e3, inf, NAN});
  expect_at(x, [](const Tensor& t) { return pow(t, 0); }, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0});
  expect_at(x, [](const Tensor& t) { return pow(t, 1); }, x, {1, 1, 1, 1, 1, 1, 1, 1});
  expect_at({-2, 0, 4, inf}, [](const Tensor& t) { return pow(t, -1.5); }, {NAN, inf, 0.125, 0},
            {NAN, -inf, -0.046875, -0.0});
}

TEST(ScalarOps, ClampPassesNoGradientAtABoundOrNaN) {
  const double inf = INFINITY;
  const std::vector<double> x{-inf, -4, -1.5, -0.0, 3, 4, inf, NAN};
  expect_at(x, [](const Tensor& t) { return clamp(t, -1.5, 3); }, {-1.5, -1.5, -1.5, -0.0, 3, 3, 3, NAN},
            {0, 0, 0, 1, 0, 0, 0, 0});
  expect_at(x, [](const Tensor& t) { return clamp(t, -1.5); }, {-1.5, -1.5, -1.5, -0.0, 3, 4, inf, NAN},
            {0, 0, 0, 1, 1, 1, 1, 0});
  expect_at(x, [](const Tensor& t) { return clamp(t, 3, -1.5); },
            {-1.5, -1.5, -1.5, -1.5, -1.5, -1.5, -1.5, NAN}, {0, 0, 0, 0, 0, 0, 0, 0});
}

TEST(ScalarOps, ClampRoundsItsBoundsToTheDtype) {
  const Tensor x = Tensor::from(std::vector<Half>{Half(0.1f), Half(0.5f)}, {2});
  require_grad(x);
  const Tensor y = clamp(x, 0.1);  // Half(0.1f) < 0.1f
  EXPECT_TRUE(test::same_bits(y.detach(), x.detach()));
  backward(y, Tensor::from(std::vector<Half>{Half(1.0f), Half(1.0f)}, {2}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 1}));
}

TEST(ScalarOps, ClampTakesIntegers) {
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    const Tensor x = Tensor::empty({4}, {dtype, kCpu});
    kernels::arange(cpu_context(), 1, 2, x);  // 1 3 5 7
    EXPECT_EQ(clamp(x, 2, 6).to_vector(), (std::vector<double>{2, 3, 5, 6}));
    EXPECT_EQ(clamp(x, std::nullopt, 4).to_vector(), (std::vector<double>{1, 3, 4, 4}));
    EXPECT_EQ(clamp(x, 4).dtype(), dtype);
    EXPECT_THROW(clamp(x, 2.5), ArgumentError);
    EXPECT_THROW(clamp(x, std::nullopt, 1e30), ArgumentError);
  }
  EXPECT_THROW(clamp(Tensor::zeros({1}, {DType::u8, kCpu}), -1), ArgumentError);
}

// No exponential overflows on the way, whatever the threshold.
TEST(ScalarOps, SoftplusIsStraightFarOutWithoutAThreshold) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::empty({3}, {dtype, kCpu}), one = Tensor::empty({3}, {dtype, kCpu});
    kernels::copy(cpu_context(), Tensor::from(std::vector<double>{-1e4, 1e4, 1e30}, {3}), x);
    kernels::fill(cpu_context(), one, 1);
    require_grad(x);
    const Tensor y = softplus(x, 1, 1e38);
    EXPECT_EQ(y.to_vector()[0], 0);
    EXPECT_EQ(y.to_vector()[1], 1e4);
    EXPECT_EQ(y.to_vector()[2], x.to_vector()[2]);
    backward(y, one);
    EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 1, 1}));
  }
}

TEST(ScalarOps, SmallResultsKeepTheirDigits) {
  const Tensor x = Tensor::from(std::vector<float>{-1e-6f, -20}, {2});
  const std::vector<double> flat = elu(x).to_vector(), soft = softplus(x).to_vector();
  EXPECT_NEAR(flat[0] / std::expm1(x.to_vector()[0]), 1, 2e-7);
  EXPECT_NEAR(soft[1] / std::log1p(std::exp(-20.0)), 1, 4e-7);
}

// 0.3 in bf16 is 0.30078: 40 would hold it 132 times.
TEST(ScalarOps, HalvesAreDividedByTheNumberItself) {
  const Tensor x = cast(Tensor::from(std::vector<float>{40}, {1}), DType::bf16);
  EXPECT_EQ(floor_divide(x, 0.3).dtype(), DType::bf16);
  EXPECT_EQ(floor_divide(x, 0.3).item(), 133);
  EXPECT_NEAR(remainder(x, 0.3).item(), 0.1, 1e-3);
}

TEST(ScalarOps, TheFirstPowerIsTheNumberItself) {
  const float large = std::numeric_limits<float>::max();
  const Tensor x = Tensor::from(std::vector<float>{large, -large, 0.1f}, {3});
  EXPECT_EQ(pow(x, 1).to_vector(), x.to_vector());
  EXPECT_EQ(pow(x, Tensor::from(std::vector<float>{1}, {1})).to_vector(), x.to_vector());
  const Tensor root = Tensor::from(std::vector<float>{18446741874686296064.0f}, {1});  // 2^64 (1 - 2^-23)
  EXPECT_TRUE(std::isfinite(pow(root, Tensor::from(std::vector<float>{2}, {1})).item()));
}

TEST(ScalarOps, NamesWhatIsWrong) {
  const Tensor x = Tensor::zeros({2});
  EXPECT_REFUSED(clamp(x, std::nullopt));
  EXPECT_REFUSED(clamp(x, NAN, 1), "nan", "1");
  EXPECT_REFUSED(softplus(x, 0), "beta", "0");
  EXPECT_REFUSED(clamp(Tensor::zeros({2}, {DType::i32, kCpu}), 0.5), "low", "i32", "0.5");
  EXPECT_REFUSED(elu(Tensor()), "undefined");
}

}  // namespace athanor::unary_test
