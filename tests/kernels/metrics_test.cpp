#include "kernels/metrics.h"

#include <limits>

#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

namespace athanor::metrics_test {

TEST(Metrics, MatchACountByHand) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = Tensor::from(std::vector<double>{1, 2, 3, 5, 5, 1, nan, 1, 2, 0, 9, 9}, {4, 3});
  const Tensor totals = Tensor::zeros({3}, {DType::f64, kCpu});
  // One is no multiple of 2^-24, and counts as 0.25.
  const Tensor losses = Tensor::from(std::vector<double>{0.5, 1, 0.25 + 0x1p-26, 0.25}, {4});
  // Right; the first of two equals: wrong for the second; NaN: wrong; the first of two equals: right.
  kernels::add_metrics(cpu_context(), losses, logits,
                       Tensor::from(std::vector<std::int64_t>{2, 1, 2, 1}, {4}), totals);
  EXPECT_EQ(totals.to_vector(), (std::vector<double>{2, 2, 4}));
  kernels::add_metrics(cpu_context(), losses, logits,
                       Tensor::from(std::vector<std::int64_t>{0, 0, 0, 2}, {4}), totals);
  EXPECT_EQ(totals.to_vector(), (std::vector<double>{4, 3, 8}));
}

TEST(Metrics, ReduceLoggedValues) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto after = [](MetricReduce reduce, const std::vector<std::vector<double>>& all) {
    const Tensor total = Tensor::zeros({2}, {DType::f64, kCpu});
    for (const std::vector<double>& values : all) {
      const Tensor one = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
      kernels::add_metric(cpu_context(), one, 3, reduce, total);
    }
    return total.to_vector();
  };
  EXPECT_EQ(after(MetricReduce::mean, {{1, 3}, {4}}), (std::vector<double>{3 * 2 + 3 * 4, 6}));
  EXPECT_EQ(after(MetricReduce::sum, {{1, 3}, {4}}), (std::vector<double>{8, 2}));
  EXPECT_EQ(after(MetricReduce::min, {{7, 3}, {4}}), (std::vector<double>{3, 2}))
      << "not the 0 it began with";
  EXPECT_EQ(after(MetricReduce::max, {{-7, -3}, {-4}}), (std::vector<double>{-3, 2}));
  for (const MetricReduce reduce : {MetricReduce::min, MetricReduce::max}) {
    EXPECT_TRUE(std::isnan(after(reduce, {{1}, {2, nan}, {3}})[0]));
    EXPECT_TRUE(std::isnan(after(reduce, {{nan, 1}, {3}})[0]));
  }
}

// However a set is divided: the order of additions is another each time, the bits are not.
TEST(Metrics, DoNotDependOnHowSamplesAreDivided) {
  constexpr std::int64_t kRows = 1000, kClasses = 7;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor logits = cast(randn({kRows, kClasses}, {1}), dtype);
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < kRows; ++i) labels.push_back(i % kClasses);
    const Tensor target = Tensor::from(labels, {kRows});
    const auto total_of = [&](std::int64_t batch, int ranks) {
      std::vector<double> sums(3);
      for (int rank = 0; rank < ranks; ++rank) {
        const Tensor mine = Tensor::zeros({3}, {DType::f64, kCpu});
        for (std::int64_t at = rank * batch; at < kRows; at += ranks * batch) {
          const std::int64_t rows = std::min(batch, kRows - at);
          const Tensor x = contiguous(narrow(logits, 0, at, rows)),
                       labels_of = contiguous(narrow(target, 0, at, rows));
          kernels::add_metrics(cpu_context(), cross_entropy(x, labels_of, 0.1f, Reduction::none), x,
                               labels_of, mine);
        }
        const std::vector<double> values = mine.to_vector();
        for (std::size_t i = 0; i < 3; ++i) sums[i] += values[i];
      }
      return sums;
    };
    const std::vector<double> one = total_of(kRows, 1);
    EXPECT_NEAR(one[0], kRows * cross_entropy(logits, target, 0.1f).item(), 1e-4 * one[0]);
    for (const std::int64_t batch : {1, 7, 64, 300}) {
      for (const int ranks : {1, 2, 3, 4}) EXPECT_EQ(total_of(batch, ranks), one) << batch << " " << ranks;
    }
  }
}

}  // namespace athanor::metrics_test
