// Metrics that any task may log: against scikit-learn, and the same bits however samples are divided.
#include <algorithm>
#include <cstdint>
#include <map>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_tasks.h"

namespace athanor::exact_metrics_test {

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
  return {Tensor::from(logits, {kSamples, kClasses}), Tensor::from(target, {kSamples})};
}

/// All metrics of some samples, as a step logs them.
void log_all(MetricSums& sums, const Tensor& logits, const Tensor& target) {
  const std::int64_t samples = target.numel();
  for (const std::int64_t k : {1, 2, 3}) sums.add_top_k(fmt::format("top{}", k), logits, target, k);
  const Tensor predicted = argmax(logits, -1);
  sums.add_confusion("all", predicted, target, kClasses, true);
  // Class 4 is never predicted: its precision is 0.
  std::vector<std::int64_t> others;
  for (const double says : predicted.to_vector())
    others.push_back(says == 4 ? 3 : static_cast<std::int64_t>(says));
  sums.add_confusion("never", Tensor::from(others, {samples}), target, kClasses, true);
  const Tensor a = affine(select(logits, 1, 0), 1e-3), b = affine(select(logits, 1, 1), 1e-3);
  sums.log("mae", abs(a - b), samples, MetricReduce::exact);
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
    for (const int ranks : {1, 2, 3, 4, 300}) {  // some of 300 have no samples
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
  const auto is = Tensor::from(std::vector<std::int64_t>{0, 0, 2, 255, -1}, {5}),
             says = Tensor::from(std::vector<std::int64_t>{0, 2, 2, 1, 1}, {5});
  sums.add_confusion("c", says, is, 3, true);
  const Metrics metrics = sums.mean(sums.read());
  EXPECT_TRUE(metrics.finite);
  EXPECT_EQ(metrics.value_of("c_accuracy"), 2.0 / 3);
  EXPECT_EQ(metrics.value_of("c_iou"), 0.5);
  EXPECT_EQ(metrics.value_of("c_recall/0"), 0.5);
  EXPECT_TRUE(std::isnan(metrics.value_of("c_recall/1")));
  MetricSums nothing(kCpu);
  nothing.take_names(sums.rows());
  EXPECT_TRUE(nothing.mean(nothing.read()).others.empty());
}

TEST(ExactMetrics, RejectInvalidArguments) {
  MetricSums sums(kCpu);
  const Data from = data();
  EXPECT_THROW(sums.add_top_k("t", from.logits, from.target, 0), ArgumentError);
  EXPECT_THROW(sums.add_top_k("t", from.logits, from.logits, 1), ArgumentError);
  EXPECT_THROW(sums.add_confusion("c", from.target, from.logits, 3, false), ArgumentError);
  EXPECT_THROW(sums.add_confusion("c", from.target, from.target, 0, false), ArgumentError);
  EXPECT_THROW(sums.add_confusion("a name", from.target, from.target, 3, false), ArgumentError);
  sums.add_confusion("c", from.target, from.target, 6, false);
  EXPECT_THROW(sums.add_confusion("c", from.target, from.target, 5, false), ArgumentError);
}

/// Logs all of it in training and in validation.
struct Measuring : test::Autoencoder {
  void log_some(const Batch& batch, Step& step) {
    const Tensor x = flatten(batch["image"]), logits = narrow(decoder(encoder(x)), 1, 0, 5);
    step.log_top_k("top2", logits, batch.labels, 2);
    step.log_confusion("classes", logits, batch.labels, 5, true);
    step.log_absolute_error("mae", affine(x, 0.3), x);  // has the same bits in every batch
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    log_some(batch, step);
    return error(batch);
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", error(batch));
    log_some(batch, step);
  }
};

TEST(ExactMetrics, OfRanksEqualThoseOfOne) {
  TrainerConfig config = test::small_config();
  config.threads = 1;
  config.lr = 1e-30;  // all ranks have the same weights, to the last bit
  Measuring alone;
  const test::RecordedRun one = test::train(alone, config);
  ASSERT_GT(one.epochs[0].others.size(), 30u);
  for (const int ranks : {2, 3}) {
    dist::run_ranks(ranks, [&](dist::Transport& transport) {
      Measuring task;
      TrainerConfig shared = config;
      shared.strategy = Strategy::ddp;
      const test::RecordedRun run = test::train(task, shared, &transport);
      for (const NamedValue& value : one.epochs[2].others)
        EXPECT_EQ(run.epochs[2].value_of(value.name), value.value) << value.name << " on " << ranks;
    });
  }
}

TEST(ExactMetrics, ResumeInTheMiddleOfAnEpoch) {
  const test::TempDir dir;
  TrainerConfig config = test::small_config();
  Measuring straight, saving, resuming;
  const test::RecordedRun expected = test::train(straight, config);
  config.checkpoint_dir = dir / "checkpoints";
  config.checkpoint_every = 4;
  config.checkpoint_keep = 100;
  (void)test::train(saving, config);
  TrainerConfig from = test::small_config();
  from.resume = (dir / "checkpoints/step-00000024.safetensors").string();
  const test::RecordedRun resumed = test::train(resuming, from);
  ASSERT_EQ(resumed.epochs.size(), 1u);
  for (const NamedValue& value : expected.epochs[2].others)
    EXPECT_EQ(resumed.epochs[0].value_of(value.name), value.value) << value.name;
}

// A figure of a confusion matrix is a name as any other.
TEST(ExactMetrics, CanBeMonitored) {
  TrainerConfig config = test::small_config();
  config.early_stop = EarlyStop{"val_classes_iou", 1, Goal::minimum};
  config.lr = 1e-30;
  Measuring task;
  EXPECT_EQ(test::train(task, config).report.stopped_by, StoppedBy::early_stop);
}

}  // namespace athanor::exact_metrics_test
