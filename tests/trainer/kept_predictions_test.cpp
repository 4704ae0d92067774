// Figures of all predictions of a validation: against scikit-learn and values worked out by hand, and the
// same bits however samples are divided.
#include "trainer/metrics/kept_predictions.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "tests/support/errors.h"
#include "trainer/metric_sums.h"
#include "trainer/metrics/number_errors.h"
#include "trainer/metrics/several_labels.h"

namespace athanor::kept_predictions_test {

using Numbers = std::vector<double>;

constexpr std::int64_t kSamples = 203, kClasses = 4;

/// A linear congruential generator: the numbers that scikit-learn 1.7 got.
struct Draws {
  std::uint32_t state = 7;
  std::int64_t next() {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(state >> 16);
  }
};

/// Scores with many equal ones; class 3 has no images, but is predicted.
struct Data {
  Numbers scores, targets, says, is;

  Data() {
    Draws draws;
    for (std::int64_t i = 0; i < kSamples * kClasses; ++i)
      scores.push_back(static_cast<double>(draws.next() % 200 - 100) / 16);
    for (std::int64_t i = 0; i < kSamples * kClasses; ++i)
      targets.push_back(draws.next() % 5 == 0 && i % kClasses < 3 ? 1 : 0);
    for (Numbers* const numbers : {&says, &is})
      for (std::int64_t i = 0; i < kSamples; ++i)
        numbers->push_back(static_cast<double>(draws.next() % 1000) / 8);
  }
  static Numbers column(const Numbers& of, std::int64_t c) {
    Numbers values;
    for (std::int64_t n = 0; n < kSamples; ++n)
      values.push_back(of[static_cast<std::size_t>(n * kClasses + c)]);
    return values;
  }
};

/// In batches of samples in another order, dealt out to ranks; the last batch is short.
Metrics measured(const Data& data, std::int64_t batch, int ranks) {
  std::vector<MetricSums> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) of_ranks.emplace_back(kCpu);
  for (std::int64_t at = 0, turn = 0; at < kSamples; at += batch, ++turn) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = at; i < std::min(at + batch, kSamples); ++i) rows.push_back(i * 100 % kSamples);
    const Tensor samples = Tensor::from(rows, {std::ssize(rows)});
    const auto of = [&](const Numbers& all, std::int64_t columns, DType dtype) {
      return cast(index_select(Tensor::from(all, {kSamples, columns}), 0, samples), dtype);
    };
    MetricSums& sums = of_ranks[static_cast<std::size_t>(turn % ranks)];
    sums.add("labels", SeveralLabels(kSamples, kClasses), of(data.scores, kClasses, DType::f32),
             of(data.targets, kClasses, DType::f32), samples);
    sums.add("values", NumberErrors(kSamples, 1), of(data.says, 1, DType::f64), of(data.is, 1, DType::f32),
             samples);
  }
  for (MetricSums& one : of_ranks) one.take_names(of_ranks[0].rows());
  Numbers all;
  for (const MetricSums& one : of_ranks) {
    const Numbers mine = one.read();
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return of_ranks[0].mean(of_ranks[0].joined(all));
}

TEST(KeptPredictions, AreThoseOfScikitLearn) {
  const Data data;
  const Metrics all = measured(data, kSamples, 1);
  constexpr double kPrecisions[]{0.20514896288624174, 0.18726115215157774, 0.21765601976348142};
  constexpr double kBest[]{-5.125, -4.75, -5.625};  // the scores from which on F1 is best
  for (std::int64_t c = 0; c < 3; ++c) {
    const Numbers scores = Data::column(data.scores, c), targets = Data::column(data.targets, c);
    EXPECT_NEAR(average_precision(scores, targets), kPrecisions[c], 1e-14);
    const double threshold = best_threshold(scores, targets);
    EXPECT_LT(threshold, probability_of(kBest[c]));
    EXPECT_EQ(figures_at(threshold, scores, targets).predicted,
              std::ranges::count_if(scores, [&](double score) { return score >= kBest[c]; }));
    EXPECT_EQ(all.value_of(fmt::format("threshold/{}", c)), threshold);
  }
  EXPECT_NEAR(all.value_of("mAP"), 0.2033553782671003, 1e-14);
  EXPECT_NEAR(all.value_of("f1_micro"), 0.23735408560311283, 1e-14);
  EXPECT_NEAR(all.value_of("f1_macro"), 0.22006292551323153, 1e-14);
  EXPECT_NEAR(all.value_of("tuned_f1_macro"),
              (0.35874439461883406 + 0.31336405529953915 + 0.4 +
               figures_at(0.5, Data::column(data.scores, 3), Data::column(data.targets, 3)).f1()) /
                  4,
              1e-14);
  EXPECT_EQ(all.value_of("threshold/3"), 0.5) << "of no images";
  EXPECT_NEAR(all.value_of("mae"), 40.57943349753695, 1e-13);
  EXPECT_NEAR(all.value_of("rmse"), 49.97645920584706, 1e-13);
  EXPECT_NEAR(all.value_of("r2"), -0.9206481653360614, 1e-13);
  EXPECT_EQ(all.samples, kSamples);
}

TEST(KeptPredictions, DoNotDependOnBatchesAndRanks) {
  const Data data;
  const Metrics one = measured(data, kSamples, 1);
  ASSERT_EQ(one.others.size(), 5u + kClasses + 3u);
  for (const auto& [batch, ranks] : {std::pair{1, 1}, {7, 2}, {64, 3}, {150, 3}}) {
    const Metrics other = measured(data, batch, ranks);
    ASSERT_EQ(other.others.size(), one.others.size());
    for (std::size_t i = 0; i < one.others.size(); ++i) {
      EXPECT_EQ(other.others[i].name, one.others[i].name);
      EXPECT_EQ(other.others[i].value, one.others[i].value) << one.others[i].name;
    }
  }
}

TEST(KeptPredictions, OfPartOfTheSamples) {
  MetricSums sums(kCpu);
  const auto add = [&](const Numbers& says, const Numbers& is, const std::vector<std::int64_t>& at) {
    const Shape shape{std::ssize(at), 2};
    sums.add("values", NumberErrors(9, 2), Tensor::from(says, shape), Tensor::from(is, shape),
             Tensor::from(at, {std::ssize(at)}));
  };
  EXPECT_TRUE(sums.mean(sums.read()).others.empty());
  add({1, 5, 3, 5}, {2, 5, 6, 5}, {8, 0});
  add({3, 5}, {6, 5}, {0});  // again, in place of a sample that cannot be read
  EXPECT_EQ(sums.rows(), "values number_errors:9:2");
  const Metrics two = sums.mean(sums.read());
  EXPECT_EQ(two.samples, 2);
  EXPECT_EQ(two.value_of("mae/0"), 2);
  EXPECT_EQ(two.value_of("mae/1"), 0);
  EXPECT_EQ(two.value_of("mae"), 1);
  EXPECT_EQ(two.value_of("rmse/0"), std::sqrt(5.0));
  EXPECT_EQ(two.value_of("r2/0"), 1 - 10.0 / 8);
  EXPECT_EQ(two.value_of("r2/1"), 1) << "equal targets, all met";
  MetricSums again(kCpu);
  again.write(sums.rows(), sums.read());
  EXPECT_EQ(again.mean(again.read()).value_of("mae"), 1);
  EXPECT_EQ(figures_of(Numbers{1, 2}, Numbers{3, 3}).r2, 0) << "equal targets, not met";
  EXPECT_EQ(figures_of(Numbers{1, 2, 3}, Numbers{0.1, 0.1, 0.1}).r2, 0) << "whose mean is rounded";
}

// Of scores 3, 2, 2, 1 with the class, without, with, without: at 3 it finds 1 of 1, at 2 both of 3.
TEST(SeveralLabels, EqualScoresShareAThreshold) {
  const Numbers scores{3, 2, 2, 1}, targets{1, 0, 1, 0};
  EXPECT_EQ(average_precision(scores, targets), (1.0 + 2.0 / 3) / 2);
  EXPECT_EQ(best_threshold(scores, targets), (probability_of(2) + probability_of(1)) / 2);
  const ClassFigures figures = figures_at(best_threshold(scores, targets), scores, targets);
  EXPECT_EQ(figures.images, 2);
  EXPECT_EQ(figures.predicted, 3);
  EXPECT_EQ(figures.right, 2);
  EXPECT_EQ(figures_at(0.5, Numbers{0}, Numbers{1}).predicted, 1) << "0.5 is enough";
}

TEST(SeveralLabels, WithoutImagesOrWithNaN) {
  EXPECT_TRUE(std::isnan(average_precision(Numbers{1, 2}, Numbers{0, 0})));
  EXPECT_EQ(best_threshold(Numbers{1, 2}, Numbers{0, 0}), 0.5);
  MetricSums sums(kCpu);
  const auto add = [&](double score, double target) {
    sums.add("labels", SeveralLabels(2, 1), Tensor::from(Numbers{score}, {1, 1}),
             Tensor::from(Numbers{target}, {1, 1}), Tensor::from(std::vector<std::int64_t>{0}, {1}));
    return sums.mean(sums.read());
  };
  EXPECT_EQ(add(-1, 0).value_of("mAP"), 0);
  EXPECT_EQ(add(-1, 0).value_of("f1_macro"), 0);
  EXPECT_TRUE(add(-1, 0).finite);
  EXPECT_TRUE(std::isnan(add(NAN, 1).value_of("mAP")));
  EXPECT_FALSE(add(NAN, 1).finite);
}

TEST(KeptPredictions, RejectInvalidTensors) {
  MetricSums sums(kCpu);
  const Tensor rows = Tensor::zeros({2, 3}), at = Tensor::zeros({2}, {DType::i64, kCpu});
  EXPECT_ERROR(ArgumentError, sums.add("v", NumberErrors(5, 2), rows, rows, at), "'v'", "[2, 2]", "[2, 3]");
  EXPECT_THROW(sums.add("w", NumberErrors(5, 3), rows, rows, Tensor::zeros({3}, {DType::i64, kCpu})),
               ArgumentError);
  EXPECT_ERROR(ArgumentError, NumberErrors(0, 1), "at least one sample", "0");
}

}  // namespace athanor::kept_predictions_test
