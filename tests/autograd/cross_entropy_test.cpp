#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

// cross_entropy() with options, and against distributions; loss_test.cpp has the plain one.

namespace athanor::cross_entropy_test {

using test::close;
using test::same_bits;

constexpr std::int64_t kIgnored = 255;

DType wide(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : 4e-6;
}

Tensor logits(const Shape& shape, DType dtype = DType::f64) {
  return test::filled({shape}, dtype, {1}, -3, 3);
}
Tensor distributions(const Shape& shape, DType dtype = DType::f64) {
  return test::filled({shape}, dtype, {2}, 0, 1);
}
Tensor class_weights(std::int64_t classes, DType dtype = DType::f64) {
  return test::filled({{classes}}, wide(dtype), {3}, 0.5, 2);
}
/// Every third is ignored.
Tensor labels(const Shape& shape, std::int64_t classes, bool some_ignored) {
  const Tensor t = Tensor::empty(shape, {DType::i64, kCpu});
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<std::int64_t>()[i] = some_ignored && i % 3 == 1 ? kIgnored : (5 * i + 2) % classes;
  return t;
}

struct Expected {
  std::vector<double> losses;
  double sum = 0, mean = 0;
};

// By the formula in autograd/loss.h, in double: target [N] classes, or [N, C] distributions.
Expected reference(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options) {
  const std::vector<double> values = x.to_vector(), t = target.to_vector();
  const auto classes = static_cast<std::size_t>(x.dim(-1));
  const bool soft = is_floating(target.dtype());
  const std::vector<double> w =
      options.weight.defined() ? options.weight.to_vector() : std::vector<double>(classes, 1.0);
  const double s = options.label_smoothing;
  Expected result;
  double counts = 0;
  for (std::size_t n = 0; n < values.size() / classes; ++n) {
    const double* row = values.data() + n * classes;
    const double max = *std::max_element(row, row + classes);
    double sum = 0, loss = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - max);
    const bool ignored = !soft && options.ignore_index && t[n] == static_cast<double>(*options.ignore_index);
    for (std::size_t c = 0; c < classes && !ignored; ++c) {
      const double q = soft ? t[n * classes + c] : static_cast<double>(static_cast<double>(c) == t[n]);
      loss -= w[c] * ((1 - s) * q + s / static_cast<double>(classes)) * (row[c] - max - std::log(sum));
    }
    counts += soft ? 1 : ignored ? 0 : w[static_cast<std::size_t>(t[n])];
    result.losses.push_back(loss);
    result.sum += loss;
  }
  result.mean = result.sum / counts;
  return result;
}

void check(const Tensor& x, const Tensor& target, CrossEntropyOptions options) {
  const DType dtype = x.dtype();
  const Expected expected = reference(x, target, options);
  SCOPED_TRACE(fmt::format("{} {} smoothing {} weights {} ignoring {}", dtype, x.shape(),
                           options.label_smoothing, options.weight.defined(), bool(options.ignore_index)));
  options.reduction = Reduction::none;
  const Tensor none = cross_entropy(x, target, options);
  EXPECT_EQ(none.dtype(), wide(dtype));
  EXPECT_EQ(none.rank(), x.rank() - 1);
  EXPECT_TRUE(close(none, expected.losses, tolerance(dtype)));
  options.reduction = Reduction::sum;
  EXPECT_TRUE(close(cross_entropy(x, target, options), std::vector{expected.sum}, tolerance(dtype)));
  options.reduction = Reduction::mean;
  EXPECT_TRUE(close(cross_entropy(x, target, options), std::vector{expected.mean}, tolerance(dtype)));
}

TEST(CrossEntropyOptions, EveryCombinationMatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t classes : {1, 2, 10, 16, 17, 64, 1000}) {
      for (const double smoothing : {0.0, 0.25, 1.0}) {
        for (const bool weighted : {false, true}) {
          CrossEntropyOptions options{.label_smoothing = smoothing};
          if (weighted) options.weight = class_weights(classes, dtype);
          check(logits({7, classes}, dtype), distributions({7, classes}, dtype), options);
          check(logits({7, classes}, dtype), labels({7}, classes, false), options);
          options.ignore_index = kIgnored;
          check(logits({7, classes}, dtype), labels({7}, classes, true), options);
        }
      }
    }
  }
}

TEST(CrossEntropyOptions, NothingToAddGivesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = logits({33, 10}, dtype), t = labels({33}, 10, false);
    for (const Reduction reduction : test::kReductions) {
      const Tensor plain = cross_entropy(x, t, 0.1, reduction);
      EXPECT_TRUE(same_bits(cross_entropy(x, t, {.label_smoothing = 0.1, .reduction = reduction}), plain));
      for (const DType integer : {DType::i32, DType::u8})
        EXPECT_TRUE(same_bits(cross_entropy(x, cast(t, integer), 0.1, reduction), plain));
    }
    EXPECT_TRUE(same_bits(cross_entropy_of_each(x, t, 0.1).mean, cross_entropy(x, t, 0.1)));
    // Nobody is ignored, and all weights are 1.
    const Tensor none = cross_entropy(x, t, 0, Reduction::none);
    const Tensor ones = Tensor::from(std::vector<float>(10, 1), {10});
    EXPECT_TRUE(same_bits(
        cross_entropy(x, t, {.reduction = Reduction::none, .ignore_index = kIgnored, .weight = ones}), none));
  }
}

// As PyTorch has them.
TEST(CrossEntropyOptions, UnusualRows) {
  const double inf = INFINITY;
  const Tensor x = Tensor::from(std::vector<double>{1, 2, -inf, NAN, 0, 0, 1, 2, 3}, {3, 3});
  const Tensor t = Tensor::from(std::vector<std::int64_t>{0, kIgnored, 2}, {3});
  require_grad(x);
  const Tensor losses = cross_entropy(x, t, {.reduction = Reduction::none, .ignore_index = kIgnored});
  const std::vector<double> values = losses.to_vector();
  EXPECT_NEAR(values[0], 1 + std::log1p(std::exp(-1.0)), 1e-14);
  EXPECT_EQ(values[1], 0);
  backward(losses, Tensor::from(std::vector<double>{1, 1, 1}, {3}));
  EXPECT_TRUE(std::isnan(grad_of(x).to_vector()[3]));  // 0 times NaN
  // No share of an impossible class costs nothing in PyTorch, either.
  const Tensor q = Tensor::from(std::vector<double>{0.5, 0.5, 0}, {1, 3});
  EXPECT_TRUE(std::isnan(cross_entropy(narrow(x.detach(), 0, 0, 1), q).item()));

  const Tensor all = Tensor::from(std::vector<std::int64_t>{kIgnored, kIgnored}, {2});
  const Tensor zeros = Tensor::zeros({2, 3});
  EXPECT_TRUE(std::isnan(cross_entropy(zeros, all, {.ignore_index = kIgnored}).item()));
  EXPECT_EQ(cross_entropy(zeros, all, {.reduction = Reduction::sum, .ignore_index = kIgnored}).item(), 0);
}

TEST(CrossEntropyOptions, EmptyBatch) {
  const Tensor x = Tensor::zeros({0, 2, 3}), q = Tensor::zeros({0, 2, 3}), t = labels({0, 2}, 3, false);
  require_grad(x);
  for (const Tensor& target : {q, t}) {
    const Tensor weight = class_weights(3, DType::f32);
    EXPECT_TRUE(std::isnan(cross_entropy(x, target, {.weight = weight}).item()));
    backward(cross_entropy(x, target, {.reduction = Reduction::sum, .weight = weight}));
    EXPECT_EQ(grad_of(x).shape(), Shape({0, 2, 3}));
    EXPECT_EQ(cross_entropy(x, target, {.reduction = Reduction::none}).shape(), Shape({0, 2}));
  }
}

TEST(CrossEntropyOptions, RejectsInvalidArguments) {
  const Tensor x = Tensor::zeros({2, 3}), t = labels({2}, 3, false), trained = Tensor::zeros({3});
  require_grad(trained);
  const auto of = [](std::int64_t a, std::int64_t b) {
    return Tensor::from(std::vector<std::int64_t>{a, b}, {2});
  };
  EXPECT_REFUSED(cross_entropy(x, of(0, 3)), "[0, 3)", "target[1]");
  EXPECT_REFUSED(cross_entropy(x, of(-100, 0)), "[0, 3)", "target[0]", "-100");
  EXPECT_REFUSED(cross_entropy(x, of(7, -1), {.ignore_index = 7}), "[0, 3)", "target[1]", "-1");
  EXPECT_REFUSED(cross_entropy(x, of(0, 3), {.weight = Tensor::zeros({3})}), "[0, 3)", "target[1]");
  EXPECT_REFUSED(cross_entropy(x, Tensor::zeros({2})), "f32 [2, 3]", "f32 [2]");
  EXPECT_REFUSED(cross_entropy(x, Tensor::zeros({2}, {DType::boolean, kCpu})), "target", "i64", "i32", "u8",
                 "f32 [2, 3]", "bool [2]");
  EXPECT_REFUSED(cross_entropy(x, labels({2, 3}, 3, false)), "target", "i64 [2, 3]");
  EXPECT_REFUSED(cross_entropy(x, t, {.weight = Tensor::zeros({2})}), "weight", "f32 [3]", "f32 [2]");
  EXPECT_REFUSED(cross_entropy(x, t, {.weight = trained}), "weight", "gradient");
  EXPECT_REFUSED(cross_entropy(x, x, {.ignore_index = 1}), "ignore_index", "1");
  EXPECT_REFUSED(cross_entropy(x, t, {.label_smoothing = -0.5}), "label_smoothing", "[0, 1]", "-0.5");
  EXPECT_REFUSED(cross_entropy(Tensor::zeros({}), t), "input", "[N, ..., C]");
}

TEST(CrossEntropyOptions, WaitsForNoDeviceAndRepeatsItsBits) {
  const Tensor x = logits({256, 100}, DType::f32), q = distributions({256, 100}, DType::f32);
  const Tensor t = labels({256}, 100, true), weight = class_weights(100, DType::f32);
  require_grad(x);
  const ForbidSync forbid;
  const CrossEntropyOptions options{.label_smoothing = 0.1, .weight = weight};
  CrossEntropyOptions ignoring = options;
  ignoring.ignore_index = kIgnored;
  const auto run = [&](int threads) {
    const test::Threads own(threads);
    zero_grad(x);
    const std::array losses{cross_entropy(x, q, options), cross_entropy(x, t, ignoring),
                            cross_entropy(x, labels({256}, 100, false), 0.1)};
    for (const Tensor& loss : losses) backward(loss);
    return std::array{losses[0], losses[1], losses[2], clone(grad_of(x))};
  };
  const auto one = run(1), many = run(cpu_context().threads());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(many[i], one[i])) << i;
}

}  // namespace athanor::cross_entropy_test
