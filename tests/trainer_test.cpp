#include "trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "autograd/creation.h"
#include "autograd/loss.h"
#include "autograd/shape.h"
#include "data/digits.h"
#include "data/synthetic.h"
#include "kernels/cpu/onednn.h"
#include "kernels/metrics.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "support/compare.h"
#include "support/count_new.h"
#include "support/temp_dir.h"
#include "trainer/early_stopping.h"
#include "trainer/json_lines.h"
#include "trainer/progress.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

constexpr ImageSpec kSpec{4, 4, 1, 5};

/// Two linear layers on flattened images; what `spoil` does to the logits is up to the test.
class Perceptron final : public nn::Module {
 public:
  explicit Perceptron(std::uint64_t seed = 1) {
    register_module("hidden", hidden);
    register_module("out", out);
    initialize(seed);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = out(hidden(flatten(x)));
    if (training()) {
      if (on_forward) on_forward(++calls, y);
    }
    return y;
  }

  nn::Linear hidden{16, 24, {.activation = Activation::relu}};
  nn::Linear out{24, 5};
  int calls = 0;
  std::function<void(int, const Tensor&)> on_forward;
};

TrainerConfig small_config() {
  TrainerConfig config;
  config.epochs = 3;
  config.batch_size = 16;
  config.lr = 0.1;
  return config;
}

/// Keeps every report.
class Recorder final : public Callback {
 public:
  struct Log {
    std::vector<EpochReport> epochs;
    std::vector<StepInfo> steps;
    std::vector<StepReport> results;
    int fits = 0;
  };
  explicit Recorder(Log& log) : log_(log) {}
  void on_step_end(Trainer&, const StepInfo& step) override { log_.steps.push_back(step); }
  void on_step_result(Trainer&, const StepReport& report) override { log_.results.push_back(report); }
  void on_epoch_end(Trainer&, const EpochReport& report) override { log_.epochs.push_back(report); }
  void on_fit_end(Trainer&, const FitReport&) override { ++log_.fits; }

 private:
  Log& log_;
};

struct Outcome {
  FitReport report;
  Recorder::Log log;
  std::vector<double> weights;
};

Outcome run(const TrainerConfig& config, std::int64_t samples = 160,
            const std::function<void(int, const Tensor&)>& on_forward = {}) {
  const auto train = synthetic(kSpec, samples, 1), test = synthetic(kSpec, 50, 2);
  Perceptron model;
  model.on_forward = on_forward;
  Trainer trainer(config);
  Outcome result;
  trainer.add(std::make_unique<Recorder>(result.log));
  result.report = trainer.fit(model, *train, *test);
  for (const Parameter& parameter : model.parameters()) {
    const auto values = parameter.tensor.to_vector();
    result.weights.insert(result.weights.end(), values.begin(), values.end());
  }
  return result;
}

TEST(Trainer, LossFallsAndClassesAreLearned) {
  TrainerConfig config = small_config();
  config.epochs = 8;
  const auto data = synthetic(kSpec, 200, 1, 0.4);
  const auto [train, test] = split(std::shared_ptr<const Dataset>(synthetic(kSpec, 200, 1, 0.4)), 0.2);
  Perceptron model;
  Trainer trainer(config);
  Recorder::Log log;
  trainer.add(std::make_unique<Recorder>(log));
  const FitReport report = trainer.fit(model, *train, *test);
  ASSERT_EQ(log.epochs.size(), 8u);
  EXPECT_LT(log.epochs.back().train_loss, 0.3 * log.epochs.front().train_loss);
  EXPECT_GT(report.test_accuracy, 0.95);
  EXPECT_EQ(report.stopped_by, StoppedBy::epochs);
  EXPECT_EQ(report.steps.applied, 8 * 10);
  EXPECT_EQ(report.steps.skipped_overflow, 0);
}

TEST(Trainer, SameSeedSameWeights) {
  TrainerConfig config = small_config();
  config.deterministic = true;
  config.augment = {.pad = 1, .flip = true};
  const Outcome first = run(config), second = run(config);
  EXPECT_EQ(first.report.weights_hash, second.report.weights_hash);
  EXPECT_EQ(first.weights, second.weights);
  config.seed = 1;
  EXPECT_NE(run(config).report.weights_hash, first.report.weights_hash);
}

TEST(Trainer, AccumulatingEqualsTheLargerBatch) {
  TrainerConfig whole = small_config(), parts = whole;
  whole.batch_size = 32;
  parts.batch_size = 8;
  parts.accumulate = 4;
  const Outcome a = run(whole), b = run(parts);
  EXPECT_EQ(a.report.steps.applied, b.report.steps.applied);
  EXPECT_LT(test::max_relative_error(b.weights, a.weights), 1e-5);
}

// A sum of many passes in sixteen bits would lose the later ones.
TEST(Trainer, HalfPrecisionsAccumulateInF32) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    TrainerConfig config = small_config();
    config.epochs = 1;
    config.batch_size = 8;
    config.accumulate = 4;
    config.precision = precision;
    config.deterministic = true;
    const std::uint64_t hash = run(config).report.weights_hash;
    config.f32_gradients = true;
    EXPECT_EQ(run(config).report.weights_hash, hash);
    config.accumulate = 1;
    const std::uint64_t wide = run(config).report.weights_hash;
    config.f32_gradients = false;
    EXPECT_NE(run(config).report.weights_hash, wide) << "or the first comparison says nothing";
  }
}

TEST(Trainer, AShorterLastStepIsAnExactMean) {
  // 5 passes of 8, two a step: the last step has one pass. It must weigh like a step of one batch of 8.
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.batch_size = 8;
  config.accumulate = 2;
  config.momentum = 0;
  config.weight_decay = 0;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0.1); };
  std::vector<double> norms;
  class Norms final : public Callback {
   public:
    explicit Norms(std::vector<double>& to) : to_(to) {}
    void on_step_end(Trainer& trainer, const StepInfo&) override { to_.push_back(trainer.state().grad_norm); }

   private:
    std::vector<double>& to_;
  };
  const auto train = synthetic(kSpec, 40, 1), held_out = synthetic(kSpec, 10, 2);
  Perceptron model;
  Trainer trainer(config);
  trainer.add(std::make_unique<Norms>(norms));
  EXPECT_EQ(trainer.fit(model, *train, *held_out).steps.applied, 3);
  ASSERT_EQ(norms.size(), 3u);
  EXPECT_GT(norms[2], 0.5 * norms[1]);  // half the weight would give about half the norm
}

TEST(Trainer, ForbidSyncNamesTheCallSite) {
  TrainerConfig config = small_config();
  config.forbid_sync = true;
  EXPECT_NO_THROW(run(config));
  int line = 0;
  try {
    run(config, 160, [&](int call, const Tensor& y) {
      if (call == 3) {
        line = __LINE__ + 1;
        (void)select(select(y.detach(), 0, 0), 0, 0).item();
      }
    });
    FAIL() << "item() inside a step went unnoticed";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("item"), std::string::npos) << what;
    EXPECT_NE(what.find(fmt::format("trainer_test.cpp:{}", line)), std::string::npos) << what;
  }
}

TEST(Trainer, MaxStepsAndFastDevRunEndEarly) {
  TrainerConfig config = small_config();
  config.max_steps = 13;
  const Outcome limited = run(config);
  EXPECT_EQ(limited.report.steps.applied, 13);
  EXPECT_EQ(limited.report.stopped_by, StoppedBy::max_steps);
  EXPECT_EQ(limited.log.epochs.size(), 2u);  // 10 steps, then 3
  config.max_steps = -1;
  config.fast_dev_run = true;
  const Outcome dev = run(config);
  EXPECT_EQ(dev.report.steps.applied, 1);
  EXPECT_EQ(dev.log.epochs.size(), 1u);
  EXPECT_TRUE(std::isfinite(dev.report.test_accuracy));
  config = small_config();
  config.max_time_s = 1e-9;
  EXPECT_EQ(run(config).report.stopped_by, StoppedBy::max_time);
}

TEST(Trainer, ANonFiniteStepChangesNothingAndIsCounted) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  // The logits of call 4 become NaN in place, behind the tape's back: the gradients of that step are NaN.
  const Outcome bad = run(config, 160, [](int call, const Tensor& y) {
    if (call == 4) y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(bad.report.steps.applied, 9);
  EXPECT_EQ(bad.report.steps.skipped_overflow, 1);
  for (const double w : bad.weights) ASSERT_TRUE(std::isfinite(w));
  EXPECT_TRUE(std::isfinite(bad.log.epochs[0].train_loss)) << "the loss of a skipped step is not reported";
  EXPECT_EQ(bad.log.epochs[0].steps.skipped_overflow, 1);
  ASSERT_EQ(bad.log.results.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(bad.log.results[i].attempted, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(bad.log.results[i].result, i == 3 ? StepResult::skipped_overflow : StepResult::applied);
  }
}

// The forward pass of a step that is skipped has moved the statistics of norms: they are put back.
TEST(Trainer, ASkippedStepLeavesWeightsAndStatisticsAlone) {
  class Net final : public nn::Module {
   public:
    Net() {
      register_module("norm", norm);
      register_module("out", out);
      initialize(1);
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = out(flatten(norm(x)));
      if (training() && ++calls == spoiled) y.data<float>()[0] = std::numeric_limits<float>::infinity();
      return y;
    }
    nn::BatchNorm norm{1};
    nn::Linear out{16, 5};
    int calls = 0, spoiled = 0;
  };
  const auto train = synthetic(kSpec, 160, 1), test = synthetic(kSpec, 50, 2);
  const auto values = [&](int spoiled, std::int64_t steps, double ema_decay = 0) {
    Net net;
    net.spoiled = spoiled;
    TrainerConfig config = small_config();
    config.schedule = [](double lr, std::int64_t) { return schedules::constant(lr); };
    config.max_steps = steps;
    config.ema_decay = ema_decay;
    Trainer trainer(config);
    EXPECT_EQ(trainer.fit(net, *train, *test).steps.skipped_overflow, spoiled > 0 ? 1 : 0);
    std::vector<double> all;
    for (const NamedTensor& buffer : net.buffers()) {
      for (const double value : buffer.tensor.to_vector()) all.push_back(value);
    }
    EXPECT_FALSE(all.empty());
    for (const Parameter& parameter : net.parameters()) {
      for (const double value : parameter.tensor.to_vector()) all.push_back(value);
    }
    return all;
  };
  const std::vector<double> five = values(0, 5);
  EXPECT_EQ(values(6, 6), five);
  EXPECT_NE(values(0, 6), five);
  // The statistics are averaged with the weights; the step that is skipped moves no average either.
  const std::vector<double> averaged = values(0, 5, 0.9);
  EXPECT_EQ(values(6, 6, 0.9), averaged);
  EXPECT_NE(averaged[0], five[0]) << "the mean";
  EXPECT_NE(averaged[0], 0) << "what it was at first";
}

// When every step is lost, somebody must say so: which parameter, which op, what to do.
TEST(Trainer, OverflowsThatNothingHelpsAreAnError) {
  TrainerConfig config = small_config();
  config.patience_at_floor = 4;
  config.accumulate = 2;
  const auto spoil = [](int call, const Tensor& y) {
    if (call > 6) y.data<float>()[0] = std::numeric_limits<float>::infinity();
  };
  try {
    run(config, 160, spoil);
    FAIL() << "trained on";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("of 4 steps in a row"), std::string::npos) << text;
    EXPECT_NE(text.find("that of hidden.weight"), std::string::npos) << text;
    EXPECT_NE(text.find("cross_entropy"), std::string::npos) << text;
    EXPECT_NE(text.find("--lr"), std::string::npos) << text;
  }
  // An epoch shorter than that patience is one, too.
  config.patience_at_floor = 1000;
  EXPECT_THROW(run(config, 160, spoil), Error);
}

TEST(Trainer, AScaleThatStillFallsIsNoError) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.loss_scaling = LossScaling{};
  config.patience_at_floor = 1;
  const Outcome spoiled = run(
      config, 160, [](int, const Tensor& y) { y.data<float>()[0] = std::numeric_limits<float>::infinity(); });
  EXPECT_EQ(spoiled.report.steps.skipped_overflow, 10);
  EXPECT_EQ(spoiled.log.epochs.back().loss_scale, 0x1p6f);
}

TEST(Trainer, HalfPrecisionsLearnAsWell) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    TrainerConfig config = small_config();
    config.epochs = 8;
    config.precision = precision;
    config.deterministic = true;
    const Outcome half = run(config, 200);
    EXPECT_LT(half.log.epochs.back().train_loss, 0.3 * half.log.epochs.front().train_loss);
    EXPECT_GT(half.log.epochs.back().train_accuracy, 0.9);
    EXPECT_EQ(half.log.epochs.back().loss_scale, precision == Precision::f16 ? 0x1p16f : 1.0f);
    EXPECT_EQ(run(config, 200).report.weights_hash, half.report.weights_hash);
    // Gradients in f32 are another rounding, not another training.
    config.f32_gradients = true;
    const Outcome wide = run(config, 200);
    EXPECT_NE(wide.report.weights_hash, half.report.weights_hash);
    EXPECT_NEAR(wide.log.epochs.back().train_loss, half.log.epochs.back().train_loss, 0.02);
  }
}

TEST(Trainer, OutliersAreSkippedAndTold) {
  TrainerConfig config = small_config();
  config.epochs = 12;
  config.skip_outliers = 6;
  const Outcome outcome = run(config, 160, [](int call, const Tensor& y) {
    if (call != 100) return;
    for (std::int64_t i = 0; i < y.numel(); ++i) y.data<float>()[i] = i % 5 == 0 ? 1e4f : -1e4f;
  });
  EXPECT_EQ(outcome.report.steps.skipped_outlier, 1);
  EXPECT_EQ(outcome.report.steps.skipped_overflow, 0);
  EXPECT_EQ(outcome.log.results.at(99).result, StepResult::skipped_outlier);
}

// A slow average lags behind the weights: validated, reported and delivered are the averages.
TEST(Trainer, TheAverageIsValidatedAndDelivered) {
  TrainerConfig config = small_config();
  config.epochs = 2;
  config.deterministic = true;
  const Outcome plain = run(config);
  config.ema_decay = 0.95;
  const Outcome averaged = run(config);
  EXPECT_EQ(averaged.log.epochs[1].train_loss, plain.log.epochs[1].train_loss) << "training does not see it";
  EXPECT_EQ(averaged.log.epochs[1].weights_hash, plain.log.epochs[1].weights_hash);
  EXPECT_NE(averaged.log.epochs[0].val_loss, plain.log.epochs[0].val_loss);
  EXPECT_EQ(averaged.report.test_loss, averaged.log.epochs[1].val_loss);
  EXPECT_NE(averaged.weights, plain.weights);
  // With early stopping, the averages of the best epoch are put back.
  config.epochs = 12;
  config.lr = 2;
  config.early_stop = EarlyStop{"val_loss", 2};
  const Outcome stopped = run(config);
  double best = std::numeric_limits<double>::infinity();
  for (const EpochReport& epoch : stopped.log.epochs) best = std::min(best, epoch.val_loss);
  EXPECT_EQ(stopped.report.test_loss, best);
}

TEST(Trainer, ClipsTheGlobalNorm) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.momentum = config.weight_decay = 0;
  config.schedule = [](double, std::int64_t) { return schedules::constant(1.0); };
  config.max_steps = 1;
  config.clip_norm = 1e-3;
  Perceptron before;
  std::vector<double> start;
  for (const Parameter& p : before.parameters()) {
    for (const double w : p.tensor.to_vector()) start.push_back(w);
  }
  const Outcome clipped = run(config);
  double moved = 0;
  for (std::size_t i = 0; i < start.size(); ++i) moved += std::pow(clipped.weights[i] - start[i], 2);
  EXPECT_NEAR(std::sqrt(moved), 1e-3, 2e-5);
}

TEST(Trainer, RefusesDataAndModelsThatDoNotFit) {
  const auto train = synthetic(kSpec, 20), none = synthetic(kSpec, 0), other = synthetic({4, 4, 3, 5}, 20);
  const auto more = synthetic({4, 4, 1, 7}, 20);
  Perceptron model;
  Trainer trainer(small_config());
  EXPECT_THROW(trainer.fit(model, *none, *train), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *train, *none), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *train, *other), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *more, *more), ArgumentError);  // 5 logits for 7 classes
  EXPECT_NO_THROW(trainer.fit(model, *train, *train));            // and is none the worse for it
}

class WarmStep : public testing::TestWithParam<Precision> {};

TEST_P(WarmStep, AsksForNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const auto train = digits(Part::train), held_out = digits(Part::test);
  const auto model = nn::make_model("digits_cnn", {10, 1, 8}, 0);
  TrainerConfig config;
  config.epochs = 3;
  config.batch_size = 32;
  config.augment = {.pad = 1};
  config.precision = GetParam();
  config.forbid_sync = true;
  config.ema_decay = 0.9;
  struct Counts {
    std::int64_t news_before = 0, growths = 0, syncs = 0, primitives = 0, news_after = 0;
  };
  class Watch final : public Callback {
   public:
    explicit Watch(std::vector<Counts>& to) : to_(to) { to_.reserve(1000); }
    void on_step_end(Trainer&, const StepInfo&) override {
      Counts now{.news_before = test::operator_news(), .syncs = host_syncs()};
      now.growths = allocator_of(kCpu).stats().growths;  // looking allocates, too: not the step's doing
      now.primitives = std::ssize(cpu_context().primitives().contents());
      now.news_after = test::operator_news();
      to_.push_back(now);
    }

   private:
    std::vector<Counts>& to_;
  };
  std::vector<Counts> counts;
  Trainer trainer(config);
  trainer.add(std::make_unique<Watch>(counts));
  trainer.fit(*model, *train, *held_out);
  const std::size_t per_epoch = counts.size() / 3;
  ASSERT_EQ(per_epoch, 44u);
  for (std::size_t i = per_epoch + 1; i < counts.size(); ++i) {  // the first epoch warms up
    if (i % per_epoch == 0) continue;                            // between epochs there are reports
    SCOPED_TRACE(fmt::format("step {}", i));
    EXPECT_EQ(counts[i].news_before - counts[i - 1].news_after, 0) << "operator new";
    EXPECT_EQ(counts[i].growths - counts[i - 1].growths, 0) << "allocator growth";
    EXPECT_EQ(counts[i].syncs - counts[i - 1].syncs, 0) << "host syncs";
    EXPECT_EQ(counts[i].primitives - counts[i - 1].primitives, 0) << "primitives";
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, WarmStep,
                         testing::Values(Precision::f32, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

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

// Early stopping, by the table.

struct EarlyCase {
  const char* what;
  EarlyStopRule::Goal goal;
  std::int64_t patience;
  std::vector<double> values;
  std::int64_t stops_at;  // index of the value that stops it; -1: never
  std::int64_t best_at;
};

TEST(EarlyStop, FollowsTheTable) {
  constexpr auto kMin = EarlyStopRule::Goal::minimum, kMax = EarlyStopRule::Goal::maximum;
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
  };
  for (const EarlyCase& c : cases) {
    SCOPED_TRACE(c.what);
    EarlyStopRule rule(c.goal, c.patience);
    std::int64_t stopped = -1;
    for (std::size_t i = 0; i < c.values.size() && stopped < 0; ++i) {
      const auto verdict = rule.update(c.values[i]);
      if (verdict == EarlyStopRule::Verdict::stop || verdict == EarlyStopRule::Verdict::not_finite) {
        stopped = static_cast<std::int64_t>(i);
      }
    }
    EXPECT_EQ(stopped, c.stops_at);
    EXPECT_EQ(rule.best_at(), c.best_at);
  }
  EXPECT_THROW(EarlyStopRule(kMin, 0), ArgumentError);
}

TEST(EarlyStop, PutsTheBestWeightsBack) {
  TrainerConfig config = small_config();
  config.epochs = 12;
  config.early_stop = EarlyStop{"val_loss", 2};
  config.schedule = [](double, std::int64_t) { return schedules::constant(2.0); };  // far too much
  config.momentum = 0;
  const Outcome result = run(config);
  ASSERT_EQ(result.report.stopped_by, StoppedBy::early_stop);
  const auto best = std::min_element(result.log.epochs.begin(), result.log.epochs.end(),
                                     [](auto& a, auto& b) { return a.val_loss < b.val_loss; });
  ASSERT_NE(best, result.log.epochs.end() - 1);
  EXPECT_EQ(result.report.weights_hash, best->weights_hash);
  EXPECT_EQ(result.report.test_loss, best->val_loss);
}

// What is written.

TEST(JsonLines, HoldOneObjectPerEpochAndOneAtTheEnd) {
  const test::TempDir dir;
  TrainerConfig config = small_config();
  config.metrics = dir / "metrics.jsonl";
  const Outcome result = run(config);
  run(config);  // appends
  std::istringstream file(test::read_file(config.metrics));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 8u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& line = lines[i];
    EXPECT_EQ(line["event"], "epoch");
    EXPECT_EQ(line["epoch"], static_cast<int>(i) + 1);
    for (const char* key : {"train_loss", "val_loss", "val_accuracy", "images_per_s"}) {
      EXPECT_TRUE(line.at(key).is_number()) << key;
    }
    EXPECT_EQ(line["weights_hash"].get<std::string>().size(), 16u);
  }
  const auto& end = lines[3];
  EXPECT_EQ(end["event"], "end");
  EXPECT_EQ(end["applied_steps"], 30);
  EXPECT_EQ(end["skipped_steps"], 0);
  EXPECT_EQ(end["stopped_by"], "epochs");
  EXPECT_EQ(end["weights_hash"], fmt::format("{:016x}", result.report.weights_hash));
  EXPECT_EQ(end["weights_hash"], lines[2]["weights_hash"]);
  for (const char* key : {"test_accuracy", "wall_s", "images_per_s", "host_syncs", "peak_bytes"}) {
    EXPECT_TRUE(end.at(key).is_number()) << key;
  }
  EXPECT_EQ(lines[7]["weights_hash"], end["weights_hash"]);
}

TEST(JsonLines, RefuseAFileThatCannotBeWritten) {
  TrainerConfig config = small_config();
  config.metrics = "/nowhere/metrics.jsonl";
  EXPECT_THROW(Trainer{config}, IoError);
}

TEST(Progress, OverwritesNothingWithoutATerminal) {
  for (const bool live : {false, true}) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* out = open_memstream(&text, &size);
    {
      const auto train = synthetic(kSpec, 160), test = synthetic(kSpec, 20);
      Perceptron model;
      Trainer trainer(small_config());
      trainer.add(std::make_unique<Progress>(out, live));
      trainer.fit(model, *train, *test);
    }
    std::fclose(out);
    const std::string said(text, size);
    std::free(text);  // NOLINT: open_memstream's contract
    if (!live) {
      EXPECT_EQ(said.find('\r'), std::string::npos);
    }
    EXPECT_TRUE(said.starts_with("athanor: device cpu, ")) << said;
    EXPECT_NE(said.find("\n    3   "), std::string::npos) << said;
    EXPECT_NE(said.find("test accuracy "), std::string::npos) << said;
  }
}

TEST(Progress, WritesNumbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(duration(0.04), "0.0 s");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(200), "3 min 20 s");
  EXPECT_EQ(duration(7500), "2 h 5 min");
}

TEST(RunMain, MapsErrorsToExitCodes) {
  setenv("ATHANOR_OMP_SET", "1", 1);  // this process is not to start itself again
  const auto code = [](auto&& body) {
    return run_main(0, nullptr, [&](int, char**) -> int {
      body();
      return 0;
    });
  };
  EXPECT_EQ(code([] {}), 0);
  EXPECT_EQ(code([] { throw ArgumentError("x"); }), 2);
  EXPECT_EQ(code([] { throw IoError("x"); }), 2);
  EXPECT_EQ(code([] { throw BackendError("x"); }), 3);
  EXPECT_EQ(code([] { throw OutOfMemoryError("x"); }), 3);
  EXPECT_EQ(code([] { throw std::bad_alloc(); }), 3);
  EXPECT_EQ(code([] { throw PeerLostError("x"); }), 74);
  EXPECT_EQ(code([] { throw HelpRequested(""); }), 0);
}

}  // namespace
}  // namespace athanor
