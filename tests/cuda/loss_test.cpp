#include "kernels/loss.h"

#include "kernels/cuda/context.h"
#include "tests/cuda/ops.h"

namespace athanor::loss_test {

using test::context;
using LossOnDevice = test::DeviceTest;

// Sums of a row are made in another order; then each result is rounded once.
double tolerance(DType dtype) {
  return 8 * test::epsilon_of(dtype);
}

struct Problem {
  Tensor logits, target;
};

// `off` elements beyond an aligned start.
Problem problem(std::int64_t rows, std::int64_t classes, DType dtype, std::int64_t off = 0) {
  Tensor logits = Tensor::empty({rows * classes + off}, {dtype, kCpu})
                      .view_as_strided({rows, classes}, {classes, 1}, off);
  test::fill_uniform(logits, {1}, -4, 4);
  Tensor target = test::filled({{rows}}, DType::i64, {2}, 0, static_cast<double>(classes));
  return {logits, target};
}

/// Statistics, losses or their mean, and the gradient.
template <class Where>
std::vector<Tensor> cross_entropy(const Where& on, const Problem& p, double smoothing, bool reduced) {
  const std::int64_t rows = p.logits.shape()[0];
  const DType wide = test::wide_dtype(p.logits.dtype());
  const Shape shape = reduced ? Shape{} : Shape{rows};
  const double scale = reduced ? 1.0 / static_cast<double>(std::max<std::int64_t>(rows, 1)) : 1.0;
  const Tensor stats = on.empty({rows, 2}, wide), y = on.empty(shape, wide),
               dx = on.empty(p.logits.shape(), p.logits.dtype());
  const Tensor losses = reduced ? on.empty({rows}, wide) : y;
  const Tensor dy = on(test::filled({shape}, wide, {3}, 0.5, 1.5));
  kernels::cross_entropy_forward(on.context, on(p.logits), on(p.target), smoothing, scale, stats, losses,
                                 reduced ? y : Tensor());
  kernels::cross_entropy_backward(on.context, on(p.logits), on(p.target), stats, smoothing, scale, dy, dx);
  return {stats, y, dx};
}

void check_cross_entropy(const Problem& p, double smoothing, bool reduced) {
  const DType dtype = p.logits.dtype();
  SCOPED_TRACE(fmt::format("{} {} smoothing {} reduced {}", dtype, p.logits.shape(), smoothing, reduced));
  const double wide = tolerance(test::wide_dtype(dtype));
  test::expect_as_on_cpu([&](const auto& on) { return cross_entropy(on, p, smoothing, reduced); },
                         {wide, wide, is_half(dtype) ? test::epsilon_of(dtype) : tolerance(dtype)});
}

// A row for every way a row is shared out: lanes, a warp's registers, a block's, and none.
TEST_F(LossOnDevice, CrossEntropyEqualsCpuForEveryRowLength) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t classes : {1, 2, 10, 31, 64, 255, 256, 264, 500, 520, 1000, 1024, 1500}) {
      check_cross_entropy(problem(5, classes, dtype), 0.1, true);
    }
    for (const std::int64_t classes : {4096, 4101, 8192, 8200, 9001}) {
      check_cross_entropy(problem(2, classes, dtype), 0.1, false);
    }
  }
}

TEST_F(LossOnDevice, CrossEntropyEqualsCpuWithAndWithoutSmoothing) {
  for (const DType dtype : test::kFloating) {
    for (const double smoothing : {0.0, 0.3}) {
      for (const bool reduced : {false, true}) {
        for (const std::int64_t rows : {0, 1, 70}) {
          check_cross_entropy(problem(rows, 24, dtype), smoothing, reduced);
          check_cross_entropy(problem(rows, 24, dtype, 1), smoothing, reduced);
        }
        check_cross_entropy(problem(1, 8200, dtype), smoothing, reduced);
      }
    }
  }
}

TEST_F(LossOnDevice, CrossEntropyOfUnusualRows) {
  const float inf = INFINITY;
  const std::vector<std::vector<float>> rows{{1, -inf, 2}, {-inf, -inf, -inf}, {inf, 0, 1}, {NAN, 0, 1},
                                             {0, 1, NAN},  {1e30f, 0, -1e30f}, {5, 5, 5}};
  for (const auto& row : rows) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const std::int64_t label : {0, 2}) {
        const Problem p{Tensor::from(row, {1, 3}), Tensor::from(std::vector<std::int64_t>{label}, {1})};
        SCOPED_TRACE(fmt::format("{}", fmt::join(row, " ")));
        test::expect_as_on_cpu(
            [&](const auto& on) { return std::vector{cross_entropy(on, p, smoothing, false)[1]}; }, {1e-6});
      }
    }
  }
}

TEST_F(LossOnDevice, TargetOutOfRangeGivesNaN) {
  const Tensor logits = Tensor::zeros({3, 4}, {DType::f32, test::device()});
  const Tensor target = Tensor::from(std::vector<std::int64_t>{4, 1, -1}, {3}, test::device());
  const TensorOptions f32{DType::f32, test::device()};
  const Tensor stats = Tensor::empty({3, 2}, f32), y = Tensor::empty({3}, f32);
  kernels::check_target(context(), "test", target, 4);
  kernels::cross_entropy_forward(context(), logits, target, 0, 1, stats, y, {});
  auto values = y.to_vector();
  EXPECT_TRUE(std::isnan(values[0]) && !std::isnan(values[1]) && std::isnan(values[2]));
  kernels::nll_forward(context(), logits, target, 1, y);
  values = y.to_vector();
  EXPECT_TRUE(std::isnan(values[0]) && values[1] == 0 && std::isnan(values[2]));
}

// Nor is one whose last 32 bits are those of a class.
TEST_F(LossOnDevice, TargetOutOfRangeIsNoClassOfTheGradient) {
  constexpr std::int64_t kFar = std::int64_t{1} << 32;
  const Tensor logits = Tensor::zeros({3, 4}, {DType::f32, test::device()});
  const Tensor target = Tensor::from(std::vector<std::int64_t>{-1, kFar + 1, 1 - kFar}, {3}, test::device());
  const TensorOptions f32{DType::f32, test::device()};
  const Tensor stats = Tensor::empty({3, 2}, f32), y = Tensor::empty({3}, f32), dx = empty_like(logits);
  const Tensor one = Tensor::from(std::vector<float>{1, 1, 1}, {3}, test::device());
  kernels::cross_entropy_forward(context(), logits, target, 0, 1, stats, y, {});
  kernels::cross_entropy_backward(context(), logits, target, stats, 0, 1, one, dx);
  for (const double share : dx.to_vector()) EXPECT_EQ(share, 0.25);
}

TEST_F(LossOnDevice, SumsAreTheSameEveryTimeAndAtEveryAlignment) {
  const Problem p = problem(300, 1000, DType::f32);
  const test::Place<CudaContext> there{context(), test::device()};
  const auto mean = [&] { return cross_entropy(there, p, 0.1, true)[1].to(kCpu); };
  EXPECT_TRUE(test::same_bits(mean(), mean()));
  for (const DType dtype : test::kFloating) {
    const Tensor a = test::filled({{5003}}, dtype, {1}), b = test::filled({{5003}}, dtype, {2});
    std::vector<Tensor> sums;
    for (const std::int64_t off : {0, 1}) {
      const Tensor base = Tensor::empty({5003 + off}, {dtype, kCpu});
      const Tensor moved = base.view_as_strided({5003}, {1}, off);
      std::memcpy(moved.raw_data(), a.raw_data(), a.bytes());
      sums.push_back(Tensor::empty({}, {test::wide_dtype(dtype), test::device()}));
      kernels::pair_loss_sum(context(), kernels::SquaredError{}, test::on_device_like(moved),
                             b.to(test::device()), {}, 1, sums.back());
    }
    EXPECT_TRUE(test::same_bits(sums[0].to(kCpu), sums[1].to(kCpu)));
  }
}

TEST_F(LossOnDevice, NllEqualsCpu) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t rows : {0, 1, 7, 400}) {
      for (const bool strided : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}", dtype, rows));
        const Problem p = problem(rows, 37, dtype);
        const DType wide = test::wide_dtype(dtype);
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor x = on(p.logits), target = on(p.target), dx = empty_like(x);
              const Tensor y = on.empty({rows}, wide), sum = on.empty({}, wide);
              kernels::nll_forward(on.context, x, target, 1, y);
              kernels::nll_forward(on.context, x, target, 0.25, sum);
              const Tensor dy = on(test::filled({{2 * rows + 1}}, wide, {3}));
              kernels::nll_backward(on.context, target, 0.5, dy.view_as_strided({rows}, {strided ? 2 : 0}, 0),
                                    dx);
              return std::vector{sum, y, dx};
            },
            {tolerance(wide), test::kBits});
      }
    }
  }
}

// Against distributions, and what is ignored ---------------------------------------------------------------

void check_soft(std::int64_t rows, std::int64_t classes, DType dtype, double smoothing, bool weighted,
                std::int64_t off = 0) {
  const DType wide = test::wide_dtype(dtype);
  const Tensor logits = problem(rows, classes, dtype, off).logits;
  const Tensor target = smoothing == 1 ? Tensor() : test::filled({{rows, classes}}, dtype, {5}, 0, 1);
  const Tensor weight = weighted ? test::filled({{classes}}, wide, {6}, 0.5, 2) : Tensor();
  SCOPED_TRACE(fmt::format("{} {} smoothing {} weights {}", dtype, logits.shape(), smoothing, weighted));
  const double exact = 4 * tolerance(wide);  // one more sum of a row
  test::expect_as_on_cpu(
      [&](const auto& on) {
        const Tensor stats = on.empty({rows, 3}, wide), losses = on.empty({rows}, wide),
                     dx = on.empty(logits.shape(), dtype);
        kernels::soft_cross_entropy_forward(on.context, on(logits), on(target), on(weight), smoothing, stats,
                                            losses);
        const Tensor dy = on(test::filled({{2 * rows + 1}}, wide, {3}, 0.5, 1.5));
        kernels::soft_cross_entropy_backward(on.context, on(logits), on(target), on(weight), smoothing, stats,
                                             dy.view_as_strided({rows}, {2}, 0), dx);
        return std::vector{stats, losses, dx};
      },
      {exact, exact, is_half(dtype) ? 2 * test::epsilon_of(dtype) : exact});
}

TEST_F(LossOnDevice, SoftCrossEntropyEqualsCpuForEveryRowLength) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t classes : {1, 2, 10, 31, 64, 255, 256, 264, 1000, 1024, 1500})
      check_soft(5, classes, dtype, 0.1, true);
    for (const std::int64_t classes : {4096, 4101, 8200}) check_soft(2, classes, dtype, 0.1, false);
  }
}

TEST_F(LossOnDevice, SoftCrossEntropyEqualsCpuForEveryChoice) {
  for (const DType dtype : test::kFloating) {
    for (const double smoothing : {0.0, 0.3, 1.0}) {
      for (const bool weighted : {false, true}) {
        for (const std::int64_t rows : {0, 1, 70}) {
          check_soft(rows, 24, dtype, smoothing, weighted);
          check_soft(rows, 24, dtype, smoothing, weighted, 1);
        }
        check_soft(1, 8200, dtype, smoothing, weighted);
      }
    }
  }
}

TEST_F(LossOnDevice, IgnoredTargetsAreSplitOff) {
  for (const std::int64_t rows : {0, 1, 7, 1000}) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < rows; ++i) labels.push_back(i % 3 == 1 ? 255 : i % 11);
    const Tensor target = Tensor::from(labels, {rows}, test::device()), classes = empty_like(target);
    const Tensor kept = Tensor::empty({rows}, {DType::boolean, test::device()});
    kernels::split_ignored(context(), target, 255, classes, kept);
    const std::vector<double> is_kept = kept.to_vector(), label = classes.to_vector();
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(is_kept[at], i % 3 == 1 ? 0 : 1);
      EXPECT_EQ(label[at], i % 3 == 1 ? 0 : static_cast<double>(i % 11));
    }
  }
}

}  // namespace athanor::loss_test
