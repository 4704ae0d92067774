#include "autograd/scalar_ops.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"

namespace athanor::scalar_ops_test {

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// An op with its numbers, and the formulas it is held against, written with the C library in double.
struct Case {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> forward, slope;
  bool positive = false;  // NaN below 0: tested above it
};

const Case kCases[] = {
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); },
     [](double x) { return std::max(x, 0.0) + 0.01 * std::min(x, 0.0); },
     [](double x) { return x > 0 ? 1 : 0.01; }},
    {"leaky_relu_steep", [](const Tensor& x) { return leaky_relu(x, 0.25); },
     [](double x) { return x > 0 ? x : 0.25 * x; }, [](double x) { return x > 0 ? 1 : 0.25; }},
    {"elu", [](const Tensor& x) { return elu(x); }, [](double x) { return x > 0 ? x : std::expm1(x); },
     [](double x) { return x > 0 ? 1 : std::exp(x); }},
    {"elu_alpha", [](const Tensor& x) { return elu(x, 1.5); },
     [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); },
     [](double x) { return x > 0 ? 1 : 1.5 * std::exp(x); }},
    {"softplus", [](const Tensor& x) { return softplus(x); },
     [](double x) { return std::log1p(std::exp(x)); }, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"softplus_beta", [](const Tensor& x) { return softplus(x, 2, 3); },
     [](double x) { return 2 * x > 3 ? x : std::log1p(std::exp(2 * x)) / 2; },
     [](double x) { return 2 * x > 3 ? 1 : 1 / (1 + std::exp(-2 * x)); }},
    {"clamp", [](const Tensor& x) { return clamp(x, -0.75, 1.25); },
     [](double x) { return std::min(std::max(x, -0.75), 1.25); },
     [](double x) { return x > -0.75 && x < 1.25 ? 1 : 0; }},
    {"clamp_low", [](const Tensor& x) { return clamp(x, -0.75); },
     [](double x) { return std::max(x, -0.75); }, [](double x) { return x > -0.75 ? 1 : 0; }},
    {"clamp_high", [](const Tensor& x) { return clamp(x, std::nullopt, 1.25); },
     [](double x) { return std::min(x, 1.25); }, [](double x) { return x < 1.25 ? 1 : 0; }},
    {"pow_cubed", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; },
     [](double x) { return 3 * x * x; }},
    {"pow_of_zero", [](const Tensor& x) { return pow(x, 0); }, [](double) { return 1; },
     [](double) { return 0; }},
    {"pow_inverse", [](const Tensor& x) { return pow(x, -1); }, [](double x) { return 1 / x; },
     [](double x) { return -1 / (x * x); }},
    {"pow_fraction", [](const Tensor& x) { return pow(x, 1.5); }, [](double x) { return x * std::sqrt(x); },
     [](double x) { return 1.5 * std::sqrt(x); }, true},
};

// Values in (0.1, 2.1) or (-2.1, 2.1), none near a kink.
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

class ScalarOp : public testing::TestWithParam<Case> {
 protected:
  void check(const Tensor& x) {
    require_grad(x);
    const Tensor y = GetParam().op(x), dy = values(x.shape(), x.dtype(), false, 7);
    backward(y, dy);
    std::vector<double> expected = x.to_vector(), expected_dx = dy.to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected_dx[i] *= GetParam().slope(expected[i]);
      expected[i] = GetParam().forward(expected[i]);
    }
    ASSERT_EQ(y.shape(), x.shape());
    const double tolerance = 4 * test::epsilon_of(x.dtype());
    EXPECT_TRUE(test::close(y, expected, tolerance)) << fmt::format("{} {}", x.dtype(), x.shape());
    EXPECT_TRUE(test::close(grad_of(x), expected_dx, tolerance))
        << fmt::format("{} {}", x.dtype(), x.shape());
  }
  Tensor make(const Shape& shape, DType dtype) const { return values(shape, dtype, GetParam().positive); }
};

TEST_P(ScalarOp, MatchesDoubleReference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 0, 2}, Shape{5, 33}, Shape{1000}})
      check(make(shape, dtype));
  }
  check(make({70'001}, DType::f32));  // several threads
}

TEST_P(ScalarOp, TakesStridedInputAndABroadcastGradient) {
  for (const DType dtype : kFloating) {
    const Tensor x = make({9, 17}, dtype), row = make({40}, dtype);
    check(x.view_as_strided({17, 9}, {1, 17}, 0));
    check(row.view_as_strided({20}, {2}, 1));
  }
  const Tensor x = make({3, 4}, DType::f64), again = make({3, 4}, DType::f64);
  require_grad(x), require_grad(again);
  const Tensor one = values({1}, DType::f64, true);
  backward(GetParam().op(x), one.view_as_strided({3, 4}, {0, 0}, 0));
  backward(GetParam().op(again), Tensor::from(std::vector<double>(12, one.item()), {3, 4}));
  EXPECT_TRUE(test::same_bits(grad_of(x), grad_of(again)));
}

TEST_P(ScalarOp, Gradcheck) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{6, 5}}) {
    const Tensor x = make(shape, DType::f64);
    require_grad(x);
    gradcheck([](std::span<const Tensor> in) { return GetParam().op(in[0]); }, std::array{x});
  }
}

TEST_P(ScalarOp, TakesNoTensorOfIntegersOrNone) {
  if (std::string_view(GetParam().name).starts_with("clamp")) {
    EXPECT_THROW(GetParam().op(Tensor::zeros({2}, {DType::boolean, kCpu})), ArgumentError);
  } else {
    EXPECT_THROW(GetParam().op(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
  }
  EXPECT_THROW(GetParam().op(Tensor()), ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(All, ScalarOp, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Values and derivatives of an op at `x` against lists that PyTorch 2.15 made: NaN is equal to NaN, and -0 is
// not 0.
void expect_at(const std::vector<double>& at, const std::function<Tensor(const Tensor&)>& op,
               const std::vector<double>& y, const std::vector<double>& slope) {
  const Shape shape{static_cast<std::int64_t>(at.size())};
  const Tensor x = Tensor::from(at, shape);
  require_grad(x);
  const Tensor result = op(x);
  backward(result, Tensor::from(std::vector<double>(at.size(), 1), shape));
  const auto same = [](double a, double b) {
    if (std::isnan(b)) return std::isnan(a);
    return std::signbit(a) == std::signbit(b) && (a == b || std::abs(a - b) <= 4e-16 * std::abs(b));
  };
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_TRUE(same(result.to_vector()[i], y[i])) << at[i] << " becomes " << result.to_vector()[i];
    EXPECT_TRUE(same(grad_of(x).to_vector()[i], slope[i]))
        << "the slope at " << at[i] << " is " << grad_of(x).to_vector()[i];
  }
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
  EXPECT_ERROR(ArgumentError, clamp(x, std::nullopt), "clamp");
  EXPECT_ERROR(ArgumentError, clamp(x, NAN, 1), "clamp", "nan", "1");
  EXPECT_ERROR(ArgumentError, softplus(x, 0), "softplus", "beta", "0");
  EXPECT_ERROR(ArgumentError, clamp(Tensor::zeros({2}, {DType::i32, kCpu}), 0.5), "clamp", "low", "i32",
               "0.5");
  EXPECT_ERROR(ArgumentError, elu(Tensor()), "elu", "undefined");
}

}  // namespace athanor::scalar_ops_test
