// Metrics that passes and ranks add up to.
#include "trainer/metric_sums.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace athanor::metric_sums_test {

TEST(MetricSums, SumUntilAStepIsSkipped) {
  MetricSums sums(kCpu);
  const Tensor losses = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const Tensor logits = Tensor::from(std::vector<float>{1, 0, 0, 1, 1, 0}, {3, 2});
  const Tensor target = Tensor::from(std::vector<std::int64_t>{0, 1, 1}, {3});
  EXPECT_TRUE(std::isnan(sums.mean(sums.read()).loss));
  sums.add(losses, logits, target);
  sums.snapshot();
  sums.add(losses, logits, target);
  EXPECT_EQ(sums.read(), (std::vector<double>{12, 4, 6}));
  StepBuffer step(kCpu);
  sums.restore_if_skipped(step);
  EXPECT_EQ(sums.read(), (std::vector<double>{12, 4, 6}));
  step->found_inf = 1;
  sums.restore_if_skipped(step);
  const Metrics mean = sums.mean(sums.read());
  EXPECT_EQ(mean.loss, 2);
  EXPECT_EQ(mean.accuracy, 2.0 / 3);
  EXPECT_EQ(mean.samples, 3);
}

TEST(MetricSums, NamesHaveRowsOfTheirOwn) {
  MetricSums sums(kCpu);
  const auto value = [](std::vector<float> values) {
    const auto n = static_cast<std::int64_t>(values.size());
    return Tensor::from(values, {n});
  };
  sums.log("psnr", value({1, 3}), 2, MetricReduce::mean);
  sums.snapshot();
  sums.log("psnr", value({8}), 6, MetricReduce::mean);
  sums.log("steps", value({1, 1, 1}), 3, MetricReduce::sum);
  sums.log("best", value({-2, -5}), 2, MetricReduce::max);
  sums.log("worst", value({-2, -5}), 2, MetricReduce::min);
  sums.log("best", value({-9}), 2, MetricReduce::max);
  sums.log("worst", value({7}), 2, MetricReduce::min);
  sums.log("psnr", value({100}), 0, MetricReduce::mean);  // a rank without samples
  Metrics mean = sums.mean(sums.read());
  ASSERT_EQ(mean.others.size(), 4u);
  EXPECT_EQ(mean.value_of("psnr"), (2 * 2 + 8 * 6) / 8.0);
  EXPECT_EQ(mean.value_of("steps"), 3);
  EXPECT_EQ(mean.value_of("best"), -2);
  EXPECT_EQ(mean.value_of("worst"), -5);
  EXPECT_EQ(mean.samples, 8);
  EXPECT_TRUE(std::isnan(mean.loss) && std::isnan(mean.value_of("other")));
  EXPECT_TRUE(mean.finite);

  StepBuffer step(kCpu);
  step->found_inf = 1;
  sums.restore_if_skipped(step);  // as before rows came
  mean = sums.mean(sums.read());
  ASSERT_EQ(mean.others.size(), 1u);
  EXPECT_EQ(mean.value_of("psnr"), 2);

  sums.log("loss", value({INFINITY}), 1, MetricReduce::mean);
  mean = sums.mean(sums.read());
  EXPECT_EQ(mean.loss, INFINITY);
  EXPECT_FALSE(mean.finite);
  sums.clear();
  EXPECT_TRUE(sums.mean(sums.read()).others.empty());
}

TEST(MetricSums, RowsOfRanksBecomeOne) {
  MetricSums sums(kCpu);
  for (const auto& [name, reduce] :
       {std::pair{"a", MetricReduce::mean}, {"b", MetricReduce::min}, {"c", MetricReduce::max}})
    sums.log(name, Tensor::from(std::vector<float>{0}, {1}), 1, reduce);
  //                                            classes  a      b       c
  const std::vector<double> rank0{1, 2, 3, 10, 2, 5, 1, -7, 1}, rank1{1, 1, 1, 2, 1, 0, 0, -9, 1};
  std::vector<double> both = rank0;
  both.insert(both.end(), rank1.begin(), rank1.end());
  EXPECT_EQ(sums.joined(both), (std::vector<double>{2, 3, 4, 12, 3, 5, 1, -7, 2}));
  std::rotate(both.begin(), both.begin() + 9, both.end());
  EXPECT_EQ(sums.joined(both), (std::vector<double>{2, 3, 4, 12, 3, 5, 1, -7, 2}));
}

TEST(MetricSums, WritesWhatItRead) {
  MetricSums sums(kCpu), other(kCpu);
  sums.log("a/b", Tensor::from(std::vector<float>{4}, {1}), 2, MetricReduce::mean);
  sums.log("c", Tensor::from(std::vector<float>{5}, {}), 1, MetricReduce::max);
  other.write(sums.rows(), sums.read());
  EXPECT_EQ(other.read(), sums.read());
  EXPECT_EQ(other.rows(), "a/b mean\nc max\n");
  other.log("c", Tensor::from(std::vector<float>{6}, {}), 1, MetricReduce::max);
  EXPECT_EQ(other.mean(other.read()).value_of("c"), 6);
  EXPECT_THROW(other.write("a mean\n", {1, 2, 3}), ArgumentError);
  EXPECT_THROW(other.write("a median\n", {1, 2, 3, 4, 5}), ArgumentError);
  EXPECT_THROW(other.write("a\"b mean\n", {1, 2, 3, 4, 5}), ArgumentError);
}

TEST(MetricSums, RejectsConflictingUsesOfOneMetric) {
  MetricSums sums(kCpu);
  const Tensor one = Tensor::from(std::vector<float>{1}, {}),
               row = Tensor::from(std::vector<float>{1, 2}, {2});
  const auto message = [&](std::string_view name, const Tensor& value,
                           MetricReduce reduce = MetricReduce::mean) {
    return test::message_of([&] { sums.log(name, value, 1, reduce); });
  };
  const Tensor integers = Tensor::from(std::vector<std::int64_t>{1}, {1});
  EXPECT_EQ(message("a", one), "");
  EXPECT_TRUE(test::names(message("a", row), {"log", "'a'", "1", "0"}));
  EXPECT_TRUE(test::names(message("a", one, MetricReduce::max), {"log", "'a'", "max", "mean"}));
  EXPECT_TRUE(test::names(message("", one), {"log", "''"}));
  EXPECT_TRUE(test::names(message("two words", one), {"log", "'two words'"}));
  EXPECT_TRUE(test::names(message("b", Tensor()), {"log", "'b'", "cpu", "none"}));
  EXPECT_TRUE(test::names(message("b", integers), {"log", "'b'", "cpu", "i64"}));
}

}  // namespace athanor::metric_sums_test
