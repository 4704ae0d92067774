#include "trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "trainer/run_main.h"

namespace athanor::trainer_test {

using test::kSmallSpec;
using test::Perceptron;
using test::RecordedRun;
using test::run;
using test::small_config;

TEST(Trainer, LossFallsAndClassesAreLearned) {
  TrainerConfig config = small_config();
  config.epochs = 8;
  const auto data = synthetic(kSmallSpec, 200, 1, 0.4);
  const auto [train, test] = split(std::shared_ptr<const Dataset>(synthetic(kSmallSpec, 200, 1, 0.4)), 0.2);
  Perceptron model;
  Trainer trainer(config);
  const RecordedRun run = test::record(trainer, model, *train, *test);
  ASSERT_EQ(run.epochs.size(), 8u);
  EXPECT_LT(run.epochs.back().train_loss, 0.3 * run.epochs.front().train_loss);
  EXPECT_GT(run.report.test_accuracy, 0.95);
  EXPECT_EQ(run.report.stopped_by, StoppedBy::epochs);
  EXPECT_EQ(run.report.steps.applied, 8 * 10);
  EXPECT_EQ(run.report.steps.skipped_overflow, 0);
}

TEST(Trainer, SameSeedSameWeights) {
  TrainerConfig config = small_config();
  config.deterministic = true;
  config.augment = {.pad = 1, .flip = true};
  const RecordedRun first = run(config), second = run(config);
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
  const RecordedRun a = run(whole), b = run(parts);
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

// 5 passes of 8, two a step: the last step has one pass, and weighs as a step of one batch of 8 does. With
// weights that hardly move, its gradient is that of those samples alone.
TEST(Trainer, AShorterLastStepIsAnExactMean) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.batch_size = 8;
  config.schedule = [](double, std::int64_t) { return schedules::constant(1e-6); };
  const std::vector<StepReport> batches = run(config, 40).results;
  config.accumulate = 2;
  const std::vector<StepReport> steps = run(config, 40).results;
  ASSERT_EQ(batches.size(), 5u);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(steps[2].grad_norm, batches[4].grad_norm, 1e-3 * batches[4].grad_norm);
}

TEST(Trainer, ForbidSyncNamesTheCallSite) {
  TrainerConfig config = small_config();
  config.forbid_sync = true;
  EXPECT_NO_THROW(run(config));
  int line = 0;
  const std::string error = test::message_of<Error>([&] {
    run(config, 160, [&](int call, const Tensor& y) {
      if (call == 3) {
        line = __LINE__ + 1;
        (void)select(select(y.detach(), 0, 0), 0, 0).item();
      }
    });
  });
  EXPECT_TRUE(test::names(error, {"item", fmt::format("trainer_test.cpp:{}", line)}));
}

TEST(Trainer, MaxStepsAndFastDevRunEndEarly) {
  TrainerConfig config = small_config();
  config.max_steps = 13;
  const RecordedRun limited = run(config);
  EXPECT_EQ(limited.report.steps.applied, 13);
  EXPECT_EQ(limited.report.stopped_by, StoppedBy::max_steps);
  EXPECT_EQ(limited.epochs.size(), 2u);  // 10 steps, then 3
  config.max_steps = -1;
  config.fast_dev_run = 1;
  const RecordedRun dev = run(config);
  EXPECT_EQ(dev.report.steps.applied, 1);
  EXPECT_EQ(dev.epochs.size(), 1u);
  EXPECT_TRUE(std::isfinite(dev.report.test_accuracy));
  config = small_config();
  config.max_time_s = 1e-9;
  EXPECT_EQ(run(config).report.stopped_by, StoppedBy::max_time);
}

// Whatever else has ended the steps before, and in the last validation, too.
TEST(Trainer, ASignalEndsAnyValidation) {
  const auto train = synthetic(kSmallSpec, 160, 1), held_out = synthetic(kSmallSpec, 50, 2);
  const auto validations = [&](const TrainerConfig& config, int signalled) {
    Perceptron model;
    model.on_validation = [&](int call, const Tensor&) {
      if (call == signalled) std::raise(SIGINT);
    };
    EXPECT_EQ(exit_code(Trainer(config).fit(model, *train, *held_out)), 128 + SIGINT);
    return model.validations;
  };
  TrainerConfig config = small_config();
  config.val_batch_size = 10;
  EXPECT_EQ(validations(config, 7), 7);
  config.max_steps = 4;
  EXPECT_EQ(validations(config, 2), 2);
  config = small_config();
  config.val_batch_size = 10;
  config.epochs = 50;
  config.lr = 1e-30;  // nothing gets better: the weights of the first epoch are put back, and measured
  config.early_stop = EarlyStop{"val_loss", 1};
  EXPECT_EQ(validations(config, 12), 12);
}

TEST(Trainer, CallbacksSeeWhatHappensInItsOrder) {
  struct Diary final : Callback {
    explicit Diary(std::vector<std::string>& to) : lines(to) {}
    void on_fit_begin(Trainer&, const FitInfo&) override { lines.emplace_back("fit"); }
    void on_step_begin(Trainer&, const StepInfo& step) override {
      lines.push_back(fmt::format("step {}", step.attempted));
    }
    void on_step_end(Trainer&, const StepInfo& step) override {
      lines.push_back(fmt::format("made {}", step.attempted));
    }
    void on_validation_begin(Trainer&) override { lines.emplace_back("validation"); }
    void on_validation_end(Trainer&, const Metrics& metrics) override {
      lines.push_back(fmt::format("of {}", metrics.samples));
    }
    void on_epoch_end(Trainer&, const EpochReport&) override { lines.emplace_back("epoch"); }
    void on_checkpoint(Trainer&, const std::filesystem::path& path) override {
      lines.push_back(path.filename().string());
    }
    void on_fit_end(Trainer&, const FitReport&) override { lines.emplace_back("end"); }
    void on_exception(Trainer&, const std::exception& error) override {
      lines.push_back(error.what());
      throw Error("dropped");
    }
    std::vector<std::string>& lines;
  };
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.checkpoint_dir = folder / "saved";
  config.metrics = folder / "metrics.jsonl";
  std::vector<std::string> lines;
  const auto train = [&](bool fails) {
    Perceptron model;
    if (fails) model.on_forward = [](int, const Tensor&) { throw ArgumentError("no more"); };
    Trainer trainer(config);
    trainer.add(std::make_unique<Diary>(lines));
    trainer.fit(model, *synthetic(kSmallSpec, 32, 1), *synthetic(kSmallSpec, 10, 2));
  };
  train(false);
  EXPECT_EQ(lines, (std::vector<std::string>{"fit", "step 0", "made 1", "step 1", "made 2", "validation",
                                             "of 10", "epoch", "step-00000002.safetensors", "end"}));
  lines.clear();
  config.checkpoint_dir.clear();
  EXPECT_THROW(train(true), ArgumentError);
  EXPECT_EQ(lines, (std::vector<std::string>{"fit", "step 0", "no more"}));
  std::ifstream in(config.metrics);
  std::string last;
  for (std::string line; std::getline(in, line);) last = line;
  EXPECT_EQ(last, R"({"event":"error","text":"no more"})");
}

// As ReduceLROnPlateau would.
TEST(Trainer, LearningRatesScaledByACallbackAreScaledAfterAResume) {
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.epochs = 2;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0.1); };
  const auto train = [&](std::int64_t stop) {
    Perceptron model;
    Trainer trainer(config);
    const auto halve = [stop](Trainer& of, const StepInfo& step) {
      if (step.attempted == 3 || step.attempted == 8) of.scale_learning_rates(0.5);
      if (step.attempted == stop) of.stop(StoppedBy::max_time, "enough");
    };
    return test::record(trainer, model, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 10, 2), halve);
  };
  const test::RecordedRun whole = train(-1);
  EXPECT_EQ(whole.results.at(2).learning_rate, 0.1f);
  EXPECT_EQ(whole.results.at(3).learning_rate, 0.05f);
  EXPECT_EQ(whole.results.at(8).learning_rate, 0.025f);
  config.checkpoint_dir = folder / "saved";
  EXPECT_EQ(train(5).report.steps.applied, 5);
  config.resume = "auto";
  const test::RecordedRun rest = train(-1);
  EXPECT_EQ(rest.results.at(0).learning_rate, 0.05f);
  EXPECT_EQ(rest.report.weights_hash, whole.report.weights_hash);
}

TEST(Trainer, HalfPrecisionsLearnAsWell) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    TrainerConfig config = small_config();
    config.epochs = 8;
    config.precision = precision;
    config.deterministic = true;
    const RecordedRun half = run(config, 200);
    EXPECT_LT(half.epochs.back().train_loss, 0.3 * half.epochs.front().train_loss);
    EXPECT_GT(half.epochs.back().train_accuracy, 0.9);
    EXPECT_EQ(half.epochs.back().loss_scale, precision == Precision::f16 ? 0x1p16f : 1.0f);
    EXPECT_EQ(run(config, 200).report.weights_hash, half.report.weights_hash);
    // Gradients in f32 are another rounding, not another training.
    config.f32_gradients = true;
    const RecordedRun wide = run(config, 200);
    EXPECT_NE(wide.report.weights_hash, half.report.weights_hash);
    EXPECT_NEAR(wide.epochs.back().train_loss, half.epochs.back().train_loss, 0.02);
  }
}

// A slow average lags behind the weights: validated, reported and delivered are the averages.
TEST(Trainer, TheAverageIsValidatedAndDelivered) {
  TrainerConfig config = small_config();
  config.epochs = 2;
  config.deterministic = true;
  const RecordedRun plain = run(config);
  config.ema_decay = 0.95;
  const RecordedRun averaged = run(config);
  EXPECT_EQ(averaged.epochs[1].train_loss, plain.epochs[1].train_loss) << "training does not see it";
  EXPECT_EQ(averaged.epochs[1].weights_hash, plain.epochs[1].weights_hash);
  EXPECT_NE(averaged.epochs[0].val_loss, plain.epochs[0].val_loss);
  EXPECT_EQ(averaged.report.test_loss, averaged.epochs[1].val_loss);
  EXPECT_NE(averaged.weights, plain.weights);
  // With early stopping, the averages of the best epoch are put back.
  config.epochs = 12;
  config.lr = 2;
  config.early_stop = EarlyStop{"val_loss", 2};
  const RecordedRun stopped = run(config);
  double best = std::numeric_limits<double>::infinity();
  for (const EpochReport& epoch : stopped.epochs) best = std::min(best, epoch.val_loss);
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
  const RecordedRun clipped = run(config);
  double moved = 0;
  for (std::size_t i = 0; i < start.size(); ++i) moved += std::pow(clipped.weights[i] - start[i], 2);
  EXPECT_NEAR(std::sqrt(moved), 1e-3, 2e-5);
}

TEST(Trainer, DecaysMatricesOrAll) {
  TrainerConfig config = small_config();
  config.epochs = config.max_steps = 1;
  config.momentum = 0;
  config.weight_decay = 0.5;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0.1); };
  const std::vector<double> matrices = run(config).weights;
  config.decay = Decay::all;
  const std::vector<double> all = run(config).weights;
  Perceptron before;
  std::size_t i = 0;
  double vectors = 0;
  for (const Parameter& p : before.parameters()) {
    for (const double start : p.tensor.to_vector()) {
      const bool decays_now = p.tensor.rank() < 2;
      EXPECT_NEAR(all[i], matrices[i] - (decays_now ? 0.1 * 0.5 * start : 0), 1e-6) << p.name;
      if (decays_now) vectors += std::abs(start);
      ++i;
    }
  }
  EXPECT_GT(vectors, 0.1) << "or the comparison says nothing";
}

TEST(Trainer, RejectsMismatchedDataAndModels) {
  const auto train = synthetic(kSmallSpec, 20), none = synthetic(kSmallSpec, 0),
             other = synthetic({4, 4, 3, 5}, 20);
  const auto more = synthetic({4, 4, 1, 7}, 20);
  Perceptron model;
  Trainer trainer(small_config());
  EXPECT_THROW(trainer.fit(model, *none, *train), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *train, *none), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *train, *other), ArgumentError);
  EXPECT_THROW(trainer.fit(model, *more, *more), ArgumentError);  // 5 logits for 7 classes
  EXPECT_NO_THROW(trainer.fit(model, *train, *train));            // and is none the worse for it
}

}  // namespace athanor::trainer_test
