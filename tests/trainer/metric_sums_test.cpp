// Metrics that passes, steps and ranks add up to: against values worked out by hand and scikit-learn, and the
// same bits however samples are divided.
#include "trainer/metric_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tests/support/errors.h"
#include "trainer/metrics/confusion.h"
#include "trainer/metrics/loss_and_accuracy.h"
#include "trainer/metrics/top_k.h"

namespace athanor::metric_sums_test {

Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {std::ssize(values)});
}

Tensor integers(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {std::ssize(values)});
}

void add_classes(MetricSums& sums) {  // two of three are right
  sums.add("loss", LossAndAccuracy(), floats({1, 2, 3}),
           Tensor::from(std::vector<float>{1, 0, 0, 1, 1, 0}, {3, 2}), integers({0, 1, 1}));
}

Metrics mean(const MetricSums& sums) {
  return sums.mean(sums.read());
}

TEST(MetricSums, SumUntilAStepIsSkipped) {
  MetricSums sums(kCpu);
  EXPECT_TRUE(std::isnan(mean(sums).loss));
  add_classes(sums);
  sums.snapshot();
  add_classes(sums);
  StepBuffer step(kCpu);
  sums.restore_if_skipped(step);
  EXPECT_EQ(sums.read(), (std::vector<double>{12, 4, 6}));
  step->found_inf = 1;
  sums.restore_if_skipped(step);
  EXPECT_EQ(mean(sums).loss, 2);
  EXPECT_EQ(mean(sums).accuracy, 2.0 / 3);
  EXPECT_EQ(mean(sums).samples, 3);
}

TEST(MetricSums, NamesHaveSumsOfTheirOwn) {
  MetricSums sums(kCpu);
  sums.log("psnr", floats({1, 3}), 2, MetricReduce::mean);
  sums.snapshot();
  sums.log("psnr", floats({8}), 6, MetricReduce::mean);
  sums.log("steps", floats({1, 1, 1}), 3, MetricReduce::sum);
  sums.log("best", floats({-2, -5}), 2, MetricReduce::max);
  sums.log("worst", floats({-2, -5}), 2, MetricReduce::min);
  sums.log("best", floats({-9}), 2, MetricReduce::max);
  sums.log("worst", floats({7}), 2, MetricReduce::min);
  sums.log("psnr", floats({100}), 0, MetricReduce::mean);  // a rank without samples
  const Metrics all = mean(sums);
  ASSERT_EQ(all.others.size(), 4u);
  EXPECT_EQ(all.value_of("psnr"), (2 * 2 + 8 * 6) / 8.0);
  EXPECT_EQ(all.value_of("steps"), 3);
  EXPECT_EQ(all.value_of("best"), -2);
  EXPECT_EQ(all.value_of("worst"), -5);
  EXPECT_EQ(all.samples, 8);
  EXPECT_TRUE(all.finite && std::isnan(all.loss) && std::isnan(all.value_of("other")));

  StepBuffer step(kCpu);
  step->found_inf = 1;
  sums.restore_if_skipped(step);  // as before the other names came
  ASSERT_EQ(mean(sums).others.size(), 1u);
  EXPECT_EQ(mean(sums).value_of("psnr"), 2);

  sums.log("loss", floats({INFINITY}), 1, MetricReduce::mean);
  EXPECT_EQ(mean(sums).loss, INFINITY);
  EXPECT_FALSE(mean(sums).finite);
  sums.clear();
  EXPECT_TRUE(mean(sums).others.empty());
}

TEST(MetricSums, SumsOfRanksBecomeOne) {
  MetricSums sums(kCpu);
  add_classes(sums);
  for (const auto& [name, reduce] :
       {std::pair{"a", MetricReduce::mean}, {"b", MetricReduce::min}, {"c", MetricReduce::max}})
    sums.log(name, floats({0}), 1, reduce);
  //                                            classes  a      b       c
  const std::vector<double> rank0{1, 2, 3, 10, 2, 5, 1, -7, 1}, rank1{1, 1, 1, 2, 1, 0, 0, -9, 1};
  std::vector<double> both = rank0;
  both.insert(both.end(), rank1.begin(), rank1.end());
  EXPECT_EQ(sums.joined(both), (std::vector<double>{2, 3, 4, 12, 3, 5, 1, -7, 2}));
  std::rotate(both.begin(), both.begin() + 9, both.end());
  EXPECT_EQ(sums.joined(both), (std::vector<double>{2, 3, 4, 12, 3, 5, 1, -7, 2}));
}

// More names than fit at first, with a large metric between them.
TEST(MetricSums, MoveToMoreRoom) {
  MetricSums sums(kCpu);
  sums.add("table", Confusion(3, false), integers({0, 1}), integers({0, 2}));
  for (int i = 0; i < 20; ++i) sums.log(fmt::format("m{}", i), floats({float(i)}), 1, MetricReduce::sum);
  sums.snapshot();
  for (int i = 0; i < 20; ++i) sums.log(fmt::format("m{}", i), floats({100}), 1, MetricReduce::sum);
  sums.restore();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(mean(sums).value_of(fmt::format("m{}", i)), i);
  EXPECT_EQ(mean(sums).value_of("table_accuracy"), 0.5);
  EXPECT_TRUE(sums.rows().ends_with("m19 sum, table confusion:3"));
}

// Checkpoints ----------------------------------------------------------------------------------------------

TEST(MetricSums, ResumeAsTheyWereSaved) {
  MetricSums sums(kCpu);
  add_classes(sums);
  sums.log("a/b", floats({4}), 2, MetricReduce::mean);
  sums.log("c", floats({5}), 1, MetricReduce::max);
  sums.add("t", TopKAccuracy(1), Tensor::zeros({2, 3}), integers({0, 1}));
  sums.add("m", Confusion(2, true), integers({0, 1}), integers({0, 0}));
  EXPECT_EQ(sums.rows(), "loss loss_and_accuracy, a/b mean, c max, t top:1, m confusion_each:2");
  std::vector<double> both = sums.read();
  const std::vector<double> first = both;
  both.insert(both.end(), first.begin(), first.end());
  const StateDict state = sums.state_dict(both, 2);
  for (const int ranks : {1, 2, 3}) {
    for (int rank = 0; rank < ranks; ++rank) {
      MetricSums resumed(kCpu);
      resumed.load_state_dict(state, rank, ranks);
      EXPECT_EQ(resumed.rows(), sums.rows());
      const bool has = ranks == 2 || rank == 0;
      EXPECT_EQ(resumed.read(), ranks == 2 ? first
                                : has      ? sums.joined(both)
                                           : std::vector<double>(first.size()));
      resumed.log("c", floats({6}), 1, MetricReduce::max);
      EXPECT_EQ(mean(resumed).value_of("c"), 6);
    }
  }
  MetricSums other(kCpu);
  other.load_state_dict({}, 0, 1);
  EXPECT_EQ(other.rows(), "");
  for (const auto& [rows, count] :
       {std::pair{"a mean", 3}, {"a median", 2}, {"a\"b mean", 2}, {"a confusion:0", 1}})
    EXPECT_THROW(other.write(rows, std::vector<double>(std::size_t(count))), ArgumentError) << rows;
}

// Exact metrics --------------------------------------------------------------------------------------------

// The numbers of tests/golden/make_metric_goldens.py: a linear congruential generator.
constexpr std::int64_t kSamples = 203, kClasses = 6;

struct Data {
  Tensor logits, target;
};

Data data() {
  std::uint32_t state = 7;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(state >> 16);
  };
  std::vector<double> logits;
  for (std::int64_t i = 0; i < kSamples * kClasses; ++i)
    logits.push_back(static_cast<double>(next() % 1000) + static_cast<double>(i % kClasses) / 16);
  std::vector<std::int64_t> target;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const bool any = next() % 7 != 0;
    target.push_back(any ? next() % 5 : 5);
  }
  return {Tensor::from(logits, {kSamples, kClasses}), integers(target)};
}

/// All metrics of some samples, as a step logs them.
void log_all(MetricSums& sums, const Tensor& logits, const Tensor& target) {
  for (const std::int64_t k : {1, 2, 3}) sums.add(fmt::format("top{}", k), TopKAccuracy(k), logits, target);
  const Tensor predicted = argmax(logits, -1);
  sums.add("all", Confusion(kClasses, true), predicted, target);
  // Class 4 is never predicted: its precision is 0.
  std::vector<std::int64_t> others;
  for (const double says : predicted.to_vector())
    others.push_back(says == 4 ? 3 : static_cast<std::int64_t>(says));
  sums.add("never", Confusion(kClasses, true), integers(others), target);
  const Tensor a = affine(select(logits, 1, 0), 1e-3), b = affine(select(logits, 1, 1), 1e-3);
  sums.log("mae", abs(a - b), target.numel(), MetricReduce::exact);
}

/// In batches, dealt out to ranks; the last batch is short.
Metrics measured(const Data& from, std::int64_t batch, int ranks) {
  std::vector<MetricSums> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) of_ranks.emplace_back(kCpu);
  for (std::int64_t at = 0, turn = 0; at < kSamples; at += batch, ++turn) {
    const std::int64_t rows = std::min(batch, kSamples - at);
    log_all(of_ranks[static_cast<std::size_t>(turn % ranks)], contiguous(narrow(from.logits, 0, at, rows)),
            contiguous(narrow(from.target, 0, at, rows)));
  }
  std::vector<double> all;
  for (MetricSums& one : of_ranks) {
    one.take_names(of_ranks[0].rows());
    const std::vector<double> mine = one.read();
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return of_ranks[0].mean(of_ranks[0].joined(all));
}

TEST(ExactMetrics, AreThoseOfScikitLearn) {
  const Metrics metrics = measured(data(), kSamples, 1);
  const std::map<std::string, double> expected{
      {"top1", 0.187192118226601},
      {"top2", 0.359605911330049},
      {"top3", 0.502463054187192},
      {"all_accuracy", 0.18719211822660098},
      {"all_precision", 0.1804004137115839},
      {"all_recall", 0.18589224863734666},
      {"all_f1", 0.1822796431620486},
      {"all_iou", 0.10142675374865728},
      {"all_precision/2", 0.21875},
      {"all_recall/2", 0.2692307692307692},
      {"all_f1/2", 0.2413793103448276},
      {"all_iou/2", 0.13725490196078433},
      {"never_accuracy", 0.18719211822660098},
      {"never_precision", 0.15210180260047282},
      {"never_recall", 0.17829490770667242},
      {"never_f1", 0.16219869283509056},
      {"never_iou", 0.09096618911371708},
      {"never_precision/4", 0},
      {"never_precision/3", 0.171875},
      {"never_iou/3", 0.11956521739130435},
  };
  for (const auto& [name, value] : expected) EXPECT_NEAR(metrics.value_of(name), value, 1e-14) << name;
  EXPECT_NEAR(metrics.value_of("mae"), 0.32813208128078813, 0x1p-24) << "each counts in steps of 2^-24";
}

TEST(ExactMetrics, DoNotDependOnHowSamplesAreDivided) {
  const Data from = data();
  const Metrics whole = measured(from, kSamples, 1);
  ASSERT_GT(whole.others.size(), 30u);
  for (const std::int64_t batch : {1, 7, 64}) {
    for (const int ranks : {1, 2, 3, 300}) {  // some of 300 have no samples
      const Metrics divided = measured(from, batch, ranks);
      ASSERT_EQ(divided.others.size(), whole.others.size());
      for (std::size_t i = 0; i < whole.others.size(); ++i) {
        EXPECT_EQ(divided.others[i].name, whole.others[i].name);
        EXPECT_EQ(divided.others[i].value, whole.others[i].value)
            << whole.others[i].name << " " << batch << " " << ranks;
      }
    }
  }
}

// Where nobody is in class 1, nor is taken for it, there is nothing to say of it.
TEST(ExactMetrics, LeaveOutAbsentClassesAndMarkedTargets) {
  MetricSums sums(kCpu);
  sums.add("c", Confusion(3, true), integers({0, 2, 2, 1, 1}), integers({0, 0, 2, 255, -1}));
  const Metrics metrics = mean(sums);
  EXPECT_TRUE(metrics.finite);
  EXPECT_EQ(metrics.value_of("c_accuracy"), 2.0 / 3);
  EXPECT_EQ(metrics.value_of("c_iou"), 0.5);
  EXPECT_EQ(metrics.value_of("c_recall/0"), 0.5);
  EXPECT_TRUE(std::isnan(metrics.value_of("c_recall/1")));
  MetricSums nothing(kCpu);
  nothing.take_names(sums.rows());
  EXPECT_TRUE(mean(nothing).others.empty());
}

// Values of sums -------------------------------------------------------------------------------------------

std::vector<ValueOfSums> f1() {
  return {{"f1", {"hits", "false"}, [](std::span<const double> s) { return 2 * s[0] / (2 * s[0] + s[1]); }}};
}

TEST(MetricSums, ValuesOfSumsAreOfAllStepsAndRanks) {
  MetricSums sums(kCpu, f1());
  EXPECT_TRUE(std::isnan(mean(sums).value_of("f1")));
  sums.log("hits", floats({3}), 4, MetricReduce::sum);
  EXPECT_TRUE(std::isnan(mean(sums).value_of("f1"))) << "half of it is missing";
  sums.log("false", floats({1, 1}), 4, MetricReduce::sum);
  EXPECT_EQ(mean(sums).value_of("f1"), 6.0 / 8);
  ASSERT_EQ(mean(sums).others.size(), 1u) << "what it is computed from is not reported";
  std::vector<double> both = sums.read();
  sums.log("hits", floats({1}), 4, MetricReduce::sum);
  sums.log("false", floats({5}), 4, MetricReduce::sum);
  for (const double sum : sums.read()) both.push_back(sum);
  EXPECT_EQ(sums.mean(sums.joined(both)).value_of("f1"), 14.0 / (14 + 9));
}

TEST(MetricSums, OfAStepAreWhatItAdded) {
  MetricSums sums(kCpu, f1());
  const auto step = [&](float value) {
    add_classes(sums);
    sums.log("psnr", floats({value}), 2, MetricReduce::mean);
    sums.log("best", floats({value}), 2, MetricReduce::max);
    sums.log("hits", floats({value}), 4, MetricReduce::sum);
    sums.log("false", floats({1}), 4, MetricReduce::sum);
  };
  step(5);
  sums.snapshot();
  step(3);
  std::vector<double> after = sums.read_rows();
  const std::vector<double> before = sums.totals_before().to_vector();
  std::vector<NamedValue> values;
  sums.values_of_step(before, after, values);
  const std::map<std::string, double> expected{{"train_loss", 2},
                                               {"train_accuracy", 2.0 / 3},
                                               {"train_psnr", 3},
                                               {"train_best", 5},  // so far
                                               {"train_f1", 6.0 / 7}};
  ASSERT_EQ(values.size(), expected.size());
  for (const NamedValue& one : values) EXPECT_EQ(one.value, expected.at(one.name)) << one.name;
  after = before;
  sums.values_of_step(before, after, values);
  for (const NamedValue& one : values) EXPECT_TRUE(std::isnan(one.value)) << one.name;
}

// Bad input ------------------------------------------------------------------------------------------------

TEST(MetricSums, RejectConflictingUsesOfOneName) {
  MetricSums sums(kCpu);
  const Tensor one = floats({1}), labels = integers({1});
  sums.log("a", one, 1, MetricReduce::mean);
  sums.add("c", Confusion(6, false), labels, labels);
  EXPECT_ERROR(ArgumentError, sums.log("a", one, 1, MetricReduce::max), "log", "'a'", "max", "mean");
  EXPECT_ERROR(ArgumentError, add_classes((sums.log("loss", one, 1, MetricReduce::mean), sums)), "log",
               "'loss'", "loss_and_accuracy", "mean");
  EXPECT_ERROR(ArgumentError, sums.add("c", Confusion(5, false), labels, labels), "'c'", "confusion:5",
               "confusion:6");
  EXPECT_ERROR(ArgumentError, sums.add("c", Confusion(6, true), labels, labels), "'c'", "confusion_each:6");
  for (const char* name : {"", "two words", "\"quoted\""})
    EXPECT_ERROR(ArgumentError, sums.log(name, one, 1, MetricReduce::mean), "log", fmt::format("'{}'", name));
}

TEST(MetricSums, RejectInvalidArguments) {
  MetricSums sums(kCpu);
  const Data from = data();
  const auto log = [&](const Tensor& value) { sums.log("b", value, 1, MetricReduce::mean); };
  EXPECT_ERROR(ArgumentError, log(Tensor()), "log", "'b'", "cpu", "none");
  EXPECT_ERROR(ArgumentError, log(integers({1})), "log", "'b'", "cpu", "i64");
  EXPECT_ERROR(ArgumentError, sums.add("t", TopKAccuracy(0), from.logits, from.target), "log_top_k", "'t'",
               "0");
  EXPECT_ERROR(ArgumentError, sums.add("u", TopKAccuracy(1), from.logits, from.logits), "log_top_k", "'u'",
               "f64");
  EXPECT_ERROR(ArgumentError, sums.add("c", Confusion(3, false), from.target, from.logits), "log_confusion",
               "'c'");
  EXPECT_ERROR(ArgumentError, Confusion(0, false), "log_confusion", "1 to 4096", "0");
  EXPECT_ERROR(ArgumentError, sums.add("loss", LossAndAccuracy(), from.target, from.logits, from.target),
               "log_classes", "f64");
}

}  // namespace athanor::metric_sums_test
