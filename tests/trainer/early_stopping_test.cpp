#include "trainer/early_stopping.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/small_tasks.h"
#include "tests/support/small_training.h"

namespace athanor::early_stopping_test {

struct EarlyCase {
  const char* what;
  Goal goal;
  std::int64_t patience;
  std::vector<double> values;
  std::int64_t stops_at;  // index of the value that stops it; -1: never
  std::int64_t best_at;
  double min_delta = 0;
  std::optional<double> reach = {}, diverge = {};
};

TEST(EarlyStop, FollowsTheTable) {
  constexpr auto kMin = Goal::minimum, kMax = Goal::maximum;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<EarlyCase> cases{
      {"keeps falling", kMin, 1, {3, 2, 1, 0.5}, -1, 3},
      {"one bad is enough for patience 1", kMin, 1, {3, 2, 2.5, 1}, 2, 1},
      {"patience 2 survives one bad", kMin, 2, {3, 2, 2.5, 1, 2, 2}, 5, 3},
      {"a tie is no improvement", kMin, 2, {2, 2, 2, 1}, 2, 0},
      {"better resets the count", kMin, 2, {3, 4, 2, 4, 1, 4}, -1, 4},
      {"back up, but never better", kMin, 3, {1, 5, 4, 3, 0}, 3, 0},
      {"accuracy rises", kMax, 1, {0.1, 0.2, 0.3}, -1, 2},
      {"accuracy falls", kMax, 1, {0.3, 0.2}, 1, 0},
      {"accuracy ties", kMax, 2, {0.3, 0.3, 0.3}, 2, 0},
      {"NaN first", kMin, 5, {nan}, 0, -1},
      {"NaN later is not an improvement", kMin, 5, {2, 1, nan}, 2, 1},
      {"infinity", kMin, 5, {2, inf}, 1, 0},
      {"NaN accuracy", kMax, 5, {0.5, nan}, 1, 0},
      {"the first value is always the best so far", kMax, 1, {-1e300, -1e301}, 1, 0},
      {"a gain of min_delta is none", kMin, 1, {2, 1.5, 1}, 1, 0, 0.5},
      {"a gain above min_delta counts", kMin, 1, {2, 1.4, 0.8}, -1, 2, 0.5},
      {"small gains add up", kMin, 3, {2, 1.75, 1.25, 1}, -1, 2, 0.5},
      {"min_delta of what rises", kMax, 1, {0.5, 0.75, 0.875}, 2, 1, 0.125},
      {"good enough", kMin, 5, {3, 2, 1, 0}, 2, 2, 0, 1.0},
      {"good enough by a small step", kMin, 5, {2, 0.9}, 1, 1, 5.0, 1.0},
      {"good enough at once", kMax, 5, {0.99, 1}, 0, 0, 0, 0.9},
      {"hopeless", kMin, 5, {3, 2, 11, 1}, 2, 1, 0, {}, 10.0},
      {"at the limit is not beyond it", kMin, 5, {3, 10, 2}, -1, 2, 0, {}, 10.0},
      {"hopeless accuracy at once", kMax, 5, {0.05, 1}, 0, -1, 0, {}, 0.1},
  };
  for (const EarlyCase& c : cases) {
    SCOPED_TRACE(c.what);
    EarlyStopRule rule{c.goal, c.patience, c.min_delta, c.reach, c.diverge};
    std::int64_t stopped = -1;
    for (std::size_t i = 0; i < c.values.size() && stopped < 0; ++i) {
      const auto verdict = rule.update(c.values[i]);
      if (verdict != EarlyStopRule::Verdict::improved && verdict != EarlyStopRule::Verdict::waiting)
        stopped = static_cast<std::int64_t>(i);
    }
    EXPECT_EQ(stopped, c.stops_at);
    EXPECT_EQ(rule.best_at, c.best_at);
  }
  EXPECT_THROW(EarlyStopping(EarlyStop{"val_loss", 0}), ArgumentError);
  EXPECT_THROW(EarlyStopping(EarlyStop{"loss", 1}), ArgumentError);
}

TEST(EarlyStop, RestoresTheBestWeights) {
  TrainerConfig config = test::small_config();
  config.epochs = 12;
  config.early_stop = EarlyStop{"val_loss", 2};
  config.schedule = [](double, std::int64_t) { return schedules::constant(2.0); };  // far too much
  config.momentum = 0;
  const test::RecordedRun result = test::run(config);
  ASSERT_EQ(result.report.stopped_by, StoppedBy::early_stop);
  const auto best = std::min_element(result.epochs.begin(), result.epochs.end(),
                                     [](auto& a, auto& b) { return a.val_loss < b.val_loss; });
  ASSERT_NE(best, result.epochs.end() - 1);
  EXPECT_EQ(result.report.weights_hash, best->weights_hash);
  EXPECT_EQ(result.report.test_loss, best->val_loss);
}

TEST(EarlyStop, AMonitorKeepsTheBestWeightsAndNeverStops) {
  TrainerConfig config = test::small_config();
  config.epochs = 6;
  config.early_stop = EarlyStop{"val_loss", EarlyStop::kNever};
  config.schedule = [](double, std::int64_t) { return schedules::constant(2.0); };  // far too much
  config.momentum = 0;
  const test::RecordedRun result = test::run(config);
  EXPECT_EQ(result.report.stopped_by, StoppedBy::epochs);
  ASSERT_EQ(result.epochs.size(), 6u);
  const auto best = std::min_element(result.epochs.begin(), result.epochs.end(),
                                     [](auto& a, auto& b) { return a.val_loss < b.val_loss; });
  ASSERT_NE(best, result.epochs.end() - 1);
  EXPECT_EQ(result.report.weights_hash, best->weights_hash);
  EXPECT_EQ(result.report.test_loss, best->val_loss);
}

// Stops by one metric, which is best after the second epoch; another is best after the third.
TEST(EarlyStop, AMonitorMayWatchAnotherMetric) {
  struct Told : test::Autoencoder {
    void validation_step(const Batch&, Step& step) override {
      constexpr double kStops[] = {3, 1, 2, 2, 2, 2}, kKeeps[] = {1, 2, 3, 0, 0, 0};
      const auto epoch = static_cast<std::size_t>(step.epoch());
      step.log("stops", full({}, kStops[epoch], {DType::f32, kCpu}));
      step.log("keeps", full({}, kKeeps[epoch], {DType::f32, kCpu}));
    }
  } task;
  TrainerConfig config = test::small_config();
  config.epochs = 6;
  config.early_stop = EarlyStop{"val_stops", 2, Goal::minimum};
  config.monitor = EarlyStop{"val_keeps", EarlyStop::kNever, Goal::maximum};
  const test::RecordedRun run = test::train(task, config);
  EXPECT_EQ(run.report.stopped_by, StoppedBy::early_stop);
  ASSERT_EQ(run.epochs.size(), 4u);
  EXPECT_EQ(run.report.weights_hash, run.epochs[2].weights_hash);
}

// Its loss is that of the epoch before, which is no better; those after it are worse.
TEST(EarlyStop, AnEpochWithoutAnAppliedStepCostsNoPatience) {
  TrainerConfig config = test::small_config();
  config.epochs = 6;
  config.early_stop = EarlyStop{"val_loss", 2};
  config.loss_scaling = LossScaling{};  // falls for sixteen steps before they are stuck
  const auto spoil = [](int call, const Tensor& y) {
    if (call > 10 && call <= 20) y.data<float>()[0] = std::numeric_limits<float>::infinity();
  };
  const test::RecordedRun result = test::run(config, 160, spoil);
  EXPECT_EQ(result.report.steps.skipped_overflow, 10);
  EXPECT_EQ(result.epochs.at(1).val_loss, result.epochs[0].val_loss);
  EXPECT_GT(result.epochs.at(2).val_loss, result.epochs[0].val_loss);
  EXPECT_EQ(result.report.stopped_by, StoppedBy::early_stop);
  EXPECT_EQ(result.epochs.size(), 4u);
}

// The largest of logits that hold a NaN may still be the right one.
TEST(EarlyStop, AnEpochWithoutALossIsNotTheBest) {
  for (const char* metric : {"val_accuracy", "train_loss"}) {
    TrainerConfig config = test::small_config();
    config.epochs = 4;
    config.early_stop = EarlyStop{metric, 3};
    const auto train = synthetic(test::kSmallSpec, 160, 1), held_out = synthetic(test::kSmallSpec, 50, 2);
    test::Perceptron model;
    model.on_validation = [](int call, const Tensor& y) {
      if (call == 2) y.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
    };
    Trainer trainer(config);
    const test::RecordedRun run = test::record(trainer, model, *train, *held_out);
    EXPECT_EQ(run.report.stopped_by, StoppedBy::early_stop);
    ASSERT_EQ(run.epochs.size(), 2u);
    EXPECT_EQ(run.report.weights_hash, run.epochs[0].weights_hash);
    EXPECT_TRUE(test::names(trainer.why_stopped(), {"val_loss", "nan", "epoch 2", "epoch 1"}));
  }
}

}  // namespace athanor::early_stopping_test
