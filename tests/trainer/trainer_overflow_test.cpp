// Steps that are not finite or too large: skipped, counted, and an error where nothing helps.
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run_main.h"
#include "trainer/trainer.h"

namespace athanor::trainer_overflow_test {

using test::kSmallSpec;
using test::Perceptron;
using test::RecordedRun;
using test::run;
using test::small_config;

TEST(Trainer, ANonFiniteStepChangesNothingAndIsCounted) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  // The logits of call 4 become NaN in place, behind the tape's back: the gradients of that step are NaN.
  const RecordedRun bad = run(config, 160, [](int call, const Tensor& y) {
    if (call == 4) y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(bad.report.steps.applied, 9);
  EXPECT_EQ(bad.report.steps.skipped_overflow, 1);
  for (const double w : bad.weights) ASSERT_TRUE(std::isfinite(w));
  EXPECT_TRUE(std::isfinite(bad.epochs[0].train_loss)) << "the loss of a skipped step is not reported";
  EXPECT_EQ(bad.epochs[0].steps.skipped_overflow, 1);
  ASSERT_EQ(bad.results.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(bad.results[i].attempted, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(bad.results[i].result, i == 3 ? StepResult::skipped_overflow : StepResult::applied);
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
  const auto train = synthetic(kSmallSpec, 160, 1), test = synthetic(kSmallSpec, 50, 2);
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
TEST(Trainer, PersistentOverflowsAreAnError) {
  TrainerConfig config = small_config();
  config.max_overflows_at_floor = 4;
  config.accumulate = 2;
  const auto spoil = [](int call, const Tensor& y) {
    if (call > 6) y.data<float>()[0] = std::numeric_limits<float>::infinity();
  };
  EXPECT_ERROR(DivergedError, run(config, 160, spoil), "trainer", "4", "hidden.weight", "cross_entropy",
               "--lr");
  // An epoch shorter than that patience is one, too.
  config.max_overflows_at_floor = 1000;
  EXPECT_THROW(run(config, 160, spoil), Error);
}

TEST(Trainer, AdviceOnOverflowsFitsThePrecision) {
  const auto spoil = [](int, const Tensor& y) {
    y.data<float>()[0] = std::numeric_limits<float>::infinity();
  };
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    TrainerConfig config = small_config();
    config.max_overflows_at_floor = 4;
    config.precision = precision;
    config.loss_scaling = LossScaling::fixed(1);
    const std::string text = test::message_of<DivergedError>([&] {
      run(config, 160, [&](int call, const Tensor& y) {
        if (y.dtype() == DType::f32) return spoil(call, y);
        std::memset(y.raw_data(), 0xff, size_of(y.dtype()));  // a NaN
      });
    });
    EXPECT_TRUE(test::names(text, {"trainer", "--lr"}));
    EXPECT_EQ(test::holds(text, "--precision"), precision == Precision::f16) << text;
  }
}

// A checkpoint of weights that nothing can be done with would push out those that are good.
TEST(Trainer, NothingIsSavedWhileStepsAreStuck) {
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.max_overflows_at_floor = 6;
  config.checkpoint_dir = folder.path() / "saved";
  config.checkpoint_every = 1;
  const std::string text = test::message_of<DivergedError>([&] {
    run(config, 160, [](int call, const Tensor& y) {
      if (call > 5) y.data<float>()[0] = std::numeric_limits<float>::infinity();
    });
  });
  const CheckpointFolder saved(config.checkpoint_dir);
  EXPECT_EQ(saved.steps(), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_TRUE(test::names(text, {saved.path_of(5).string()}));
}

// Nor after a validation that gave no number, which the last step alone does not show.
TEST(Trainer, ARunWithoutALossAtTheEndHasDiverged) {
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.checkpoint_dir = folder.path() / "saved";
  const auto train = synthetic(kSmallSpec, 160, 1), held_out = synthetic(kSmallSpec, 50, 2);
  Perceptron model;
  model.on_validation = [](int call, const Tensor& y) {
    if (call == 3) y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  };
  Trainer trainer(config);
  const FitReport report = trainer.fit(model, *train, *held_out);
  EXPECT_EQ(report.stopped_by, StoppedBy::diverged);
  EXPECT_EQ(exit_code(report), kExitDiverged);
  EXPECT_TRUE(test::names(trainer.why_stopped(), {"loss", "nan", "--lr", "--clip-norm"}));
  EXPECT_EQ(CheckpointFolder(config.checkpoint_dir).steps(), (std::vector<std::int64_t>{10, 20}));
  // In the middle, it is no more than that.
  model.validations = 1;
  config.checkpoint_dir.clear();
  EXPECT_EQ(Trainer(config).fit(model, *train, *held_out).stopped_by, StoppedBy::epochs);
}

TEST(Trainer, AScaleThatStillFallsIsNoError) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.loss_scaling = LossScaling{};
  config.max_overflows_at_floor = 1;
  const RecordedRun spoiled = run(
      config, 160, [](int, const Tensor& y) { y.data<float>()[0] = std::numeric_limits<float>::infinity(); });
  EXPECT_EQ(spoiled.report.steps.skipped_overflow, 10);
  EXPECT_EQ(spoiled.epochs.back().loss_scale, 0x1p6f);
}

TEST(Trainer, OutliersAreSkippedAndReported) {
  TrainerConfig config = small_config();
  config.epochs = 12;
  config.skip_outliers = 6;
  const RecordedRun outcome = run(config, 160, [](int call, const Tensor& y) {
    if (call != 100) return;
    for (std::int64_t i = 0; i < y.numel(); ++i) y.data<float>()[i] = i % 5 == 0 ? 1e4f : -1e4f;
  });
  EXPECT_EQ(outcome.report.steps.skipped_outlier, 1);
  EXPECT_EQ(outcome.report.steps.skipped_overflow, 0);
  EXPECT_EQ(outcome.results.at(99).result, StepResult::skipped_outlier);
}

}  // namespace athanor::trainer_overflow_test
