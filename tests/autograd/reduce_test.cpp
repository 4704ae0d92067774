#include "kernels/reduce.h"

#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

namespace athanor::reduce_test {

Tensor values(const Shape& shape, DType dtype, int seed = 1) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = 2.0 * std::fmod(0.61803398875 * static_cast<double>(i + seed), 1.0) - 0.7;
  return cast(x, dtype);
}

// x with its axes in reverse order, as a view.
Tensor reversed(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::reverse(shape.begin(), shape.end());
  std::reverse(strides.begin(), strides.end());
  return x.view_as_strided(shape, strides, 0);
}

// The terms of every output in row-major order, from values in row-major order.
std::vector<std::vector<double>> groups(const Tensor& x, const std::vector<int>& axes) {
  const std::vector<double> flat = x.to_vector();
  std::vector<std::int64_t> weight(static_cast<std::size_t>(x.rank()), 0);  // of an index in the output's
  std::int64_t outputs = 1;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    if (axes.empty() || std::count(axes.begin(), axes.end(), axis) > 0) continue;
    weight[static_cast<std::size_t>(axis)] = outputs;
    outputs *= x.shape()[axis];
  }
  std::vector<std::vector<double>> result(static_cast<std::size_t>(outputs));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t rest = i, output = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      output += rest % x.shape()[axis] * weight[static_cast<std::size_t>(axis)];
      rest /= x.shape()[axis];
    }
    result[static_cast<std::size_t>(output)].push_back(flat[static_cast<std::size_t>(i)]);
  }
  return result;
}

double sum_of(const std::vector<double>& terms) {
  long double total = 0;
  for (const double term : terms) total += term;
  return static_cast<double>(total);
}
double mean_of(const std::vector<double>& terms) {
  return sum_of(terms) / static_cast<double>(terms.size());
}
double var_of(const std::vector<double>& terms) {
  const double mean = mean_of(terms);
  long double total = 0;
  for (const double term : terms) total += (term - mean) * (term - mean);
  return static_cast<double>(total) / (static_cast<double>(terms.size()) - 1);
}

struct Case {
  Shape shape;
  std::vector<int> axes;
};

// Rows, columns, both sides, the middle, all, short rows, more than one unit of work either way.
const Case kCases[] = {{{5}, {}},
                       {{}, {}},
                       {{1, 1}, {0}},
                       {{7, 9}, {1}},
                       {{7, 9}, {0}},
                       {{3, 4, 5}, {1}},
                       {{3, 4, 5}, {0, 2}},
                       {{3, 4, 5}, {}},
                       {{2, 3, 4, 5}, {1, 3}},
                       {{2, 3, 4, 5}, {0, 1, 2}},
                       {{700, 3}, {0}},
                       {{9001, 17}, {0}},
                       {{3, 20'000}, {1}},
                       {{40'000}, {0}},
                       {{5000, 300}, {0}},
                       {{2, 6000, 5}, {1}},
                       {{3000, 20}, {}}};

struct Reduction {
  const char* name;
  Tensor (*op)(const Tensor&, std::span<const int>, bool);
  double (*reference)(const std::vector<double>&);
};

const Reduction kReductions[] = {
    {"sum", sum, sum_of},
    {"mean", mean, mean_of},
    {"var", [](const Tensor& x, std::span<const int> axes, bool keepdim) { return var(x, axes, 1, keepdim); },
     [](const std::vector<double>& terms) { return terms.size() == 1 ? NAN : var_of(terms); }}};

void check(const Case& c, const Tensor& x, const std::vector<std::vector<double>>& terms) {
  for (const Reduction& reduction : kReductions) {
    std::vector<double> expected;
    for (const auto& of : terms) expected.push_back(reduction.reference(of));
    for (const bool keepdim : {false, true}) {
      SCOPED_TRACE(std::string(reduction.name) + " " + x.shape().str() + " " +
                   std::string(name_of(x.dtype())));
      const Tensor y = reduction.op(x, c.axes, keepdim);
      EXPECT_EQ(y.rank(),
                keepdim ? x.rank() : x.rank() - static_cast<int>(c.axes.empty() ? x.rank() : c.axes.size()));
      EXPECT_TRUE(test::close(y, expected, 8 * test::epsilon_of(x.dtype())));
    }
  }
}

TEST(Reduce, MatchesDoubleReference) {
  for (const Case& c : kCases) {
    const std::vector<int> axes(c.axes.begin(), c.axes.end());
    for (const DType dtype : test::kFloating) {
      const Tensor x = values(c.shape, dtype), turned = reversed(x);
      check(c, x, groups(x, axes));
      if (axes.empty() || axes.back() < turned.rank()) check(c, turned, groups(turned, axes));
    }
  }
}

TEST(Reduce, LongF32SumsStayAccurate) {
  // 2^24 + 1 ones: a single f32 accumulator stops at 2^24.
  const std::int64_t n = (1 << 24) + 1;
  const Tensor x = Tensor::empty({n});
  kernels::fill(cpu_context(), x, 1.0);
  const Tensor y = Tensor::empty({1}, {DType::f64, kCpu});
  kernels::sum(cpu_context(), x, y);
  EXPECT_EQ(y.item(), static_cast<double>(n));
  const Tensor columns = x.view_as_strided({n / 16, 16}, {16, 1}, 0);
  EXPECT_EQ(sum(columns, {0}).to_vector(), std::vector<double>(16, static_cast<double>(n / 16)));
}

TEST(Reduce, NothingSumsToZeroAndHasNoMean) {
  const Tensor x = Tensor::zeros({3, 0});
  EXPECT_EQ(sum(x, std::array{1}).to_vector(), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(mean(x).item()));
  EXPECT_TRUE(std::isnan(var(x).item()));
  EXPECT_EQ(sum(x, std::array{0}).numel(), 0);
  EXPECT_THROW(max(x, 1), ArgumentError);
  EXPECT_THROW(argmax(x, 1), ArgumentError);
  EXPECT_EQ(max(x, 0).numel(), 0);
}

TEST(Reduce, AxesMustExistAndBeNamedOnce) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_THROW(sum(x, std::array{2}), ArgumentError);
  EXPECT_THROW(sum(x, std::array{0, -2}), ArgumentError);
  EXPECT_THROW(max(x, -3), ArgumentError);
  EXPECT_THROW(sum(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
  EXPECT_EQ(sum(x, {-1}).shape(), (Shape{2}));
}

TEST(Reduce, VarDividesByCountMinusCorrection) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 6}, {4});
  EXPECT_EQ(var(x, {}, 0).item(), 3.5);
  EXPECT_FLOAT_EQ(static_cast<float>(var(x).item()), 14.0f / 3);
  EXPECT_TRUE(std::isnan(var(Tensor::from(std::vector<float>{1}, {1})).item()));
}

TEST(Reduce, VarOfLargeMeanDoesNotCancel) {
  const Tensor x = Tensor::from(std::vector<float>{10000, 10001, 10002}, {3});
  EXPECT_FLOAT_EQ(static_cast<float>(var(x).item()), 1);
}

TEST(Reduce, NaNSpreads) {
  const Tensor x = values({4, 100}, DType::f32);
  x.data<float>()[150] = NAN;
  const std::vector<double> sums = sum(x, std::array{1}).to_vector(), largest = max(x, 1).to_vector();
  for (const std::vector<double>& result : {sums, largest}) {
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_FALSE(std::isnan(result[0]));
  }
  EXPECT_EQ(argmax(x, 1).to_vector()[1], 50);
  EXPECT_TRUE(std::isnan(max(x, 0).to_vector()[50]));
  EXPECT_EQ(argmax(x, 0).to_vector()[50], 1);
}

TEST(Max, MatchesReferenceAlongEveryAxis) {
  for (const Shape& shape :
       {Shape{5}, Shape{1}, Shape{4, 6}, Shape{3, 200}, Shape{2, 7, 300}, Shape{700, 11}}) {
    for (const DType dtype : test::kFloating) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Tensor x = reversed(reversed(values(shape, dtype)));
        std::vector<double> largest, index;
        for (const auto& terms : groups(x, {axis})) {
          const auto at = std::max_element(terms.begin(), terms.end());
          largest.push_back(*at);
          index.push_back(static_cast<double>(at - terms.begin()));
        }
        EXPECT_EQ(max(x, axis).to_vector(), largest) << shape.str() << axis;
        EXPECT_EQ(argmax(x, axis).to_vector(), index) << shape.str() << axis;
        EXPECT_EQ(argmax(x, axis, true).rank(), x.rank());
        EXPECT_EQ(argmax(x, axis).dtype(), DType::i64);
      }
    }
  }
}

TEST(Max, TakesStridedInput) {
  const Tensor x = Tensor::from(std::vector<float>{1, 9, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(max(reversed(x), 0).to_vector(), (std::vector<double>{9, 6}));
  EXPECT_EQ(argmax(reversed(x), 1).to_vector(), (std::vector<double>{1, 0, 1}));
}

TEST(Max, GradientGoesToTheFirstOfEqualMaxima) {
  for (const int axis : {0, 1}) {
    const Tensor x = Tensor::from(std::vector<float>{2, 2, 2, 2}, {2, 2});
    require_grad(x);
    backward(max(x, axis), Tensor::from(std::vector<float>{3, 5}, {2}));
    EXPECT_EQ(grad_of(x).to_vector(),
              axis == 0 ? (std::vector<double>{3, 5, 0, 0}) : (std::vector<double>{3, 0, 5, 0}));
  }
}

TEST(MaxOfAll, EqualMaximaShareTheGradient) {
  for (const DType dtype : test::kFloating) {
    const Tensor x = cast(Tensor::from(std::vector<float>{1, 3, 3, 2, 3, -1, 0, 3}, {2, 4}), dtype);
    require_grad(x);
    const Tensor y = max(x);
    EXPECT_EQ(y.shape(), Shape{});
    EXPECT_EQ(y.item(), 3);
    EXPECT_EQ(argmax(x).item(), 1);
    EXPECT_EQ(argmax(x).dtype(), DType::i64);
    backward(y, cast(Tensor::from(std::vector<float>{6}, {}), dtype));
    EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 1.5, 1.5, 0, 1.5, 0, 0, 1.5}));
  }
}

TEST(MaxOfAll, TakesStridedAndScalarInputAndNaN) {
  const Tensor x = Tensor::from(std::vector<float>{1, 9, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(max(reversed(x)).item(), 9);
  EXPECT_EQ(argmax(reversed(x)).item(), 2);  // of the transpose: 1 4 9 5 3 6
  EXPECT_EQ(max(Tensor::from(std::vector<float>{-7}, {})).item(), -7);
  EXPECT_EQ(argmax(Tensor::from(std::vector<float>{-7}, {})).item(), 0);
  const Tensor nan = Tensor::from(std::vector<float>{5, NAN, 1, NAN}, {4});
  require_grad(nan);
  const Tensor y = max(nan);
  EXPECT_TRUE(std::isnan(y.item()));
  EXPECT_EQ(argmax(nan).item(), 1);
  backward(y, Tensor::from(std::vector<float>{1}, {}));
  EXPECT_EQ(grad_of(nan).to_vector(), (std::vector<double>{0, 0.5, 0, 0.5}));
  EXPECT_THROW(max(Tensor::zeros({2, 0})), ArgumentError);
  EXPECT_THROW(argmax(Tensor::zeros({0})), ArgumentError);
  EXPECT_THROW(max(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
  EXPECT_THROW(max(Tensor()), ArgumentError);
}

TEST(SumTo, UndoesABroadcast) {
  const Tensor x = values({2, 3, 4}, DType::f64);
  EXPECT_TRUE(sum_to(x, {2, 3, 4}).same_as(x));
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{4}, Shape{3, 1}, Shape{1, 3, 1}, Shape{2, 1, 4}}) {
    const Tensor y = sum_to(x, shape);
    EXPECT_EQ(y.shape(), shape);
    EXPECT_NEAR(sum(y).item(), sum(x).item(), 1e-12);
  }
  EXPECT_EQ(sum_to(x, {3, 1}).to_vector()[1], sum(sum_to(x, {3, 4}), std::array{1}).to_vector()[1]);
  EXPECT_THROW(sum_to(x, {5}), ArgumentError);
}

TEST(SumKernel, AccumulatesInTheOutputsDtype) {
  const Tensor x = values({100, 8}, DType::f16), y = Tensor::empty({1, 8});
  kernels::fill(cpu_context(), y, 10);
  kernels::sum(cpu_context(), x, y, 2, Write::accumulate);
  const std::vector<double> once = sum(x, std::array{0}).to_vector();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y.to_vector()[i], 10 + 2 * once[i], 0.05);
}

// What torch.var gives: 2 / (n - correction) dy (x - mean) along named axes, negative or infinite as it
// comes; over all, dy times NaN where x is its mean, else times infinity.
TEST(Var, GradientWithoutDegreesOfFreedomIsTorchs) {
  const double inf = INFINITY;
  const auto gradient = [](const Tensor& x, std::span<const int> axes, int correction, bool keepdim = false) {
    require_grad(x);
    zero_grad(x);
    const Tensor y = var(x, axes, correction, keepdim);
    const Tensor dy = Tensor::empty(y.shape(), y.options());
    kernels::fill(cpu_context(), dy, -2);
    backward(y, dy);
    return grad_of(x).to_vector();
  };
  const Tensor pair = Tensor::from(std::vector<double>{1, 5}, {2});
  EXPECT_EQ(gradient(pair, {}, 2), (std::vector<double>{-inf, -inf}));
  EXPECT_EQ(gradient(pair, {}, 3), (std::vector<double>{-inf, -inf}));
  const std::vector<double> three = gradient(Tensor::from(std::vector<double>{1, 3, 5}, {3}), {}, 3);
  EXPECT_EQ(three[0], -inf);
  EXPECT_TRUE(std::isnan(three[1]));
  EXPECT_EQ(three[2], -inf);
  EXPECT_TRUE(std::isnan(gradient(Tensor::from(std::vector<double>{4}, {1}), {}, 1)[0]));
  EXPECT_TRUE(std::isnan(gradient(Tensor::from(std::vector<double>{4}, {}), {}, 1)[0]));

  const std::array axis{1};
  const Tensor rows = Tensor::from(std::vector<double>{1, 5, 2, 8}, {2, 2});
  EXPECT_EQ(gradient(rows, axis, 2), (std::vector<double>{inf, -inf, inf, -inf}));
  // 2 / (2 - 4) = -1, times -2, times (x - 3) and (x - 5)
  EXPECT_EQ(gradient(rows, axis, 4), (std::vector<double>{-4, 4, -6, 6}));
  EXPECT_EQ(gradient(rows, axis, 4, true), (std::vector<double>{-4, 4, -6, 6}));
  EXPECT_EQ(gradient(rows, axis, 1), (std::vector<double>{8, -8, 12, -12}));
}

}  // namespace athanor::reduce_test
