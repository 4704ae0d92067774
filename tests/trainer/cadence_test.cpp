// When validation is due, how much of the data is used, and what ends a run early.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "tensor/allocator.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"

namespace athanor::test::cadence_test {

const bool no_runs = ::setenv("ATHANOR_RUNS_DIR", "none", 1) == 0;

TrainerConfig parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  TrainerConfig defaults = small_config();
  defaults.program = "train";
  defaults.val_batch_size = 16;
  return parse_flags(static_cast<int>(argv.size()), argv.data(), defaults);
}

struct Watched {
  RecordedRun run;
  std::vector<std::int64_t> validations;  // attempted steps at each, negative in the middle of an epoch
  int forwards = 0, validated_batches = 0;
};

/// 10 steps an epoch, 4 batches of validation.
Watched watch(const TrainerConfig& config) {
  Watched watched;
  Perceptron model;
  model.on_validation = [](int, const Tensor&) {};  // they are counted
  Trainer trainer(config);
  trainer.add(test::on_validated([&](Trainer&, const EpochReport& report) {
    EXPECT_TRUE(std::isfinite(report.val_loss));
    watched.validations.push_back((report.whole ? 1 : -1) * report.steps.attempted());
  }));
  watched.run = record(trainer, model, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  watched.forwards = model.calls;
  watched.validated_batches = model.validations;
  return watched;
}

using Steps = std::vector<std::int64_t>;

TEST(ValEvery, SomeEpochs) {
  const Watched all = watch(parse({"--epochs", "5"})),
                some = watch(parse({"--epochs", "5", "--val-every", "2e"}));
  EXPECT_EQ(all.validations, (Steps{10, 20, 30, 40, 50}));
  EXPECT_EQ(some.validations, (Steps{20, 40, 50}));
  EXPECT_TRUE(std::isnan(some.run.epochs[0].val_loss));
  EXPECT_EQ(some.run.epochs[1].val_loss, all.run.epochs[1].val_loss);
  EXPECT_EQ(some.run.report.weights_hash, all.run.report.weights_hash);
}

TEST(ValEvery, SomeSteps) {
  const Watched all = watch(parse({})), some = watch(parse({"--val-every", "4"}));
  EXPECT_EQ(some.validations, (Steps{-4, -8, -12, -16, 20, -24, -28, 30}));
  EXPECT_EQ(some.run.report.weights_hash, all.run.report.weights_hash);
  EXPECT_EQ(some.run.epochs[2].train_loss, all.run.epochs[2].train_loss);
  EXPECT_EQ(watch(parse({"--val-every", "0.5e"})).validations, (Steps{-5, 10, -15, 20, -25, 30}));
}

TEST(ValEvery, DoesNotCountInTrainingSpeed) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
  };
  double validated_s = 0;
  Perceptron model;
  model.on_validation = [&](int, const Tensor&) {
    const Clock::time_point began = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    validated_s += seconds_since(began);
  };
  TrainerConfig config = parse({"--epochs", "1", "--val-every", "4", "--limit-val-batches", "1"});
  Trainer trainer(config);
  const auto train = synthetic(kSmallSpec, 160, 1), held_out = synthetic(kSmallSpec, 50, 2);
  const Clock::time_point began = Clock::now();
  const RecordedRun slow = record(trainer, model, *train, *held_out);
  const double others_s = seconds_since(began) - validated_s;  // milliseconds, unless the machine is busy
  EXPECT_GE(validated_s, 0.2);
  EXPECT_LE(160 / slow.epochs[0].images_per_s, others_s);
  EXPECT_LE(slow.epochs[0].other_s, others_s);
}

TEST(ValEvery, EachIsALineOfTheTable) {
  const TempDir dir;
  TrainerConfig config = parse({"--epochs", "1", "--val-every", "4"});
  config.run_dir = dir / "run";
  config.log_csv = true;
  (void)watch(config);
  const std::string table = read_file(config.run_dir / "metrics.csv");
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = table.find(",validation,", at)) != table.npos; ++at) ++rows;
  EXPECT_EQ(rows, 2u) << table;
}

// Patience counts validations, and the best weights are those of the middle of an epoch.
TEST(ValEvery, EarlyStoppingLooksAtEach) {
  TrainerConfig config = parse({"--val-every", "3", "--early-stop", "val_loss:2", "--epochs", "9"});
  config.schedule = [](double, std::int64_t step) -> Schedule {
    (void)step;
    return [](std::int64_t at) { return at < 6 ? 0.01f : 3.0f; };  // from then on far too much
  };
  config.momentum = 0;
  const Watched stopped = watch(config);
  ASSERT_EQ(stopped.run.report.stopped_by, StoppedBy::early_stop);
  EXPECT_LE(stopped.validations.size(), 5u);
  config.early_stop.reset();
  config.max_steps = 6;
  EXPECT_EQ(stopped.run.report.test_loss, watch(config).run.report.test_loss);
}

TEST(ValEvery, AResumedRunMakesTheSameValidations) {
  const TempDir folder;
  TrainerConfig config =
      parse({"--val-every", "4", "--early-stop", "val_loss:9,min_delta=0.01", "--epochs", "6"});
  config.checkpoint_dir = folder / "whole";
  const Watched whole = watch(config);
  for (const std::int64_t at : {7, 8, 9, 10, 16}) {
    TrainerConfig part = config;
    part.checkpoint_dir = folder / std::to_string(at);
    part.checkpoint_every = at;
    TrainerConfig killed = part;
    Perceptron model;
    Trainer trainer(killed);
    EXPECT_THROW(record(trainer, model, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2),
                        [&](Trainer&, const StepInfo& step) {
                          if (step.attempted == at + 1) throw std::runtime_error("killed");
                        }),
                 std::runtime_error);
    part.resume = "auto";
    const Watched resumed = watch(part);
    EXPECT_EQ(resumed.run.report.weights_hash, whole.run.report.weights_hash) << at;
    EXPECT_EQ(resumed.run.report.test_loss, whole.run.report.test_loss) << at;
    Steps left = whole.validations;
    // One at the end of an epoch comes before the checkpoint of that step, one within an epoch after it.
    std::erase_if(left, [&](std::int64_t step) { return std::abs(step) < at || step == at; });
    EXPECT_EQ(resumed.validations, left) << at;
  }
}

TEST(Limits, LimitTheTrainingSet) {
  const Watched some = watch(parse({"--limit-train-batches", "3"}));
  EXPECT_EQ(some.run.steps.size(), 9u);
  EXPECT_EQ(some.run.steps.back().samples, 48);
  EXPECT_EQ(some.run.report.epochs, 3);
  const Watched share = watch(parse({"--limit-train-batches", "0.3"}));
  EXPECT_EQ(share.run.report.weights_hash, some.run.report.weights_hash);
  EXPECT_EQ(watch(parse({"--limit-train-batches", "99"})).run.report.weights_hash,
            watch(parse({})).run.report.weights_hash);
  EXPECT_EQ(watch(parse({"--limit-train-batches", "3", "--accumulate", "2"})).run.steps.size(), 6u);
}

TEST(Limits, APartResumesBitExactly) {
  const TempDir folder;
  TrainerConfig config = parse({"--limit-train-batches", "4", "--schedule", "constant"});
  config.checkpoint_dir = folder / "whole";
  const std::uint64_t whole = watch(config).run.report.weights_hash;
  config.checkpoint_dir = folder / "part";
  config.max_steps = 6;
  watch(config);
  config.max_steps = -1;
  config.resume = "auto";
  EXPECT_EQ(watch(config).run.report.weights_hash, whole);
  config.limit_train_batches.count = 5;
  EXPECT_ERROR(ArgumentError, watch(config), "--resume", "--limit-train-batches", "5", "4");
}

TEST(Limits, LimitValidation) {
  EXPECT_EQ(watch(parse({})).validated_batches, 3 * 4);
  EXPECT_EQ(watch(parse({"--limit-val-batches", "1"})).validated_batches, 3);
  EXPECT_EQ(watch(parse({"--limit-val-batches", "0.5"})).validated_batches, 3 * 2);
  Perceptron model;
  model.on_validation = [](int, const Tensor&) {};
  Trainer trainer(parse({"--limit-val-batches", "0"}));
  const RecordedRun none =
      record(trainer, model, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  EXPECT_EQ(model.validations, 0);
  EXPECT_TRUE(std::isnan(none.epochs.back().val_loss));
}

TEST(Limits, OverfittingSeesTheSameBatches) {
  const Watched few = watch(parse({"--overfit-batches", "2", "--epochs", "40", "--schedule", "constant"}));
  EXPECT_EQ(few.run.steps.size(), 80u);
  EXPECT_LT(few.run.epochs.back().train_loss, 0.1) << "32 images are soon known by heart";
  EXPECT_EQ(few.validated_batches, 40 * 2);
}

TEST(Limits, ASanityCheckComesFirstAndLeavesNoTrace) {
  const Watched plain = watch(parse({})), tried = watch(parse({"--sanity-val", "2"}));
  EXPECT_EQ(tried.validated_batches, plain.validated_batches + 2);
  EXPECT_EQ(tried.run.report.weights_hash, plain.run.report.weights_hash);
  EXPECT_EQ(tried.validations, plain.validations);
  Perceptron model;
  model.on_validation = [](int, const Tensor&) { throw std::runtime_error("no room"); };
  Trainer trainer(parse({"--sanity-val", "1"}));
  EXPECT_THROW(record(trainer, model, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2)),
               std::runtime_error);
  EXPECT_EQ(model.calls, 0);
}

TEST(Limits, FastDevRunMakesTheGivenSteps) {
  const Watched one = watch(parse({"--fast-dev-run"})), three = watch(parse({"--fast-dev-run=3"}));
  EXPECT_EQ(one.run.steps.size(), 1u);
  EXPECT_EQ(one.validated_batches, 1);
  EXPECT_EQ(three.run.steps.size(), 3u);
  EXPECT_EQ(three.validated_batches, 3);
}

TEST(NanPolicy, StopEndsAtTheFirstNaN) {
  for (const std::string flag : {"--detect-anomaly", "--nan-policy=stop"}) {
    const TrainerConfig config = parse({flag});
    int calls = 0;
    const auto spoil = [&](int call, const Tensor& y) {
      calls = std::max(calls, call);
      if (call == 4) y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    };
    EXPECT_ERROR(DivergedError, run(config, 160, spoil), "trainer", "1");
    EXPECT_EQ(calls, 5) << "the step, and once more to find the op";
  }
  EXPECT_ERROR(ArgumentError, parse({"--detect-anomaly", "--nan-policy=skip"}), "--detect-anomaly",
               "--nan-policy");
  const RecordedRun skipped = run(parse({"--nan-policy", "skip"}), 160, [](int call, const Tensor& y) {
    if (call == 4) y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(skipped.report.steps.skipped(), 1);
}

// What is fused is rounded as its parts are: nothing changes but the time.
TEST(Switches, TurningFeaturesOffChangesNoWeights) {
  const std::uint64_t usual = run(parse({"--workers", "2"})).report.weights_hash;
  EXPECT_EQ(run(parse({"--workers", "2", "--persistent-workers", "off"})).report.weights_hash, usual);
  EXPECT_EQ(run(parse({"--fused", "off"})).report.weights_hash, usual);
  EXPECT_EQ(run(parse({"--pin-memory", "off"})).report.weights_hash, usual);
  for (const char* flag : {"--empty-cache", "--sync-each-step"})
    EXPECT_EQ(run(parse({flag, "on"})).report.weights_hash, usual) << flag;
  EXPECT_EQ(run(parse({"--inference-mode", "off"})).report.weights_hash, usual);
}

TEST(Switches, WithoutInferenceModeValidationRecords) {
  const auto records = [](const std::string& flag) {
    bool recorded = false;
    Perceptron model;
    model.on_validation = [&](int, const Tensor&) { recorded = grad_enabled(); };
    Trainer trainer(parse({"--inference-mode", flag, "--epochs", "1"}));
    record(trainer, model, *synthetic(kSmallSpec, 32, 1), *synthetic(kSmallSpec, 16, 2));
    return recorded;
  };
  EXPECT_FALSE(records("on"));
  EXPECT_TRUE(records("off"));
}

TEST(Switches, AfterEachStepTheCacheIsEmptiedAndTheDeviceIdle) {
  // How often the steps asked the system for memory, and waited for the device.
  const auto counts = [](const std::vector<std::string>& flags) {
    const auto large = [](int, const Tensor&) { Tensor::empty({1 << 21}); };
    const std::int64_t before = allocator_of(kCpu).stats().growths;
    const std::int64_t waits = run(parse(flags), 160, large).report.host_syncs;
    return std::pair(allocator_of(kCpu).stats().growths - before, waits);
  };
  (void)counts({});
  const auto [growths, waits] = counts({});
  const auto [emptied, same] = counts({"--empty-cache", "on"});
  EXPECT_GE(emptied, growths + 29) << "every step but the first";
  EXPECT_EQ(same, waits);
  const auto [cached, more] = counts({"--sync-each-step", "on"});
  EXPECT_LE(cached, growths + 1);
  EXPECT_EQ(more, waits + 30);
  EXPECT_ERROR(ArgumentError, run(parse({"--forbid-sync", "--sync-each-step", "on"})), "--forbid-sync",
               "--empty-cache", "--sync-each-step");
}

TEST(Switches, WithoutFusionActivationsAreOpsOfTheirOwn) {
  const auto ops = [](const std::string& flag) {
    std::vector<std::string> names;
    Perceptron model;
    model.on_forward = [&](int call, const Tensor&) {
      if (call > 1) return;
      const NoGrad no_grad;
      OpTrace trace;
      model.hidden(Tensor::zeros({2, 16}));
      for (const TracedOp& op : trace.ops()) names.emplace_back(op.name);
    };
    Trainer trainer(parse({"--fused", flag, "--epochs", "1"}));
    record(trainer, model, *synthetic(kSmallSpec, 32, 1), *synthetic(kSmallSpec, 16, 2));
    return names;
  };
  EXPECT_EQ(ops("on"), (std::vector<std::string>{"linear"}));
  EXPECT_EQ(ops("off"), (std::vector<std::string>{"linear", "relu"}));
}

TEST(CadenceFlags, TimesAreReadInLightningsForms) {
  EXPECT_EQ(parse({"--max-time", "90"}).max_time_s, 90);
  EXPECT_EQ(parse({"--max-time", "02:30"}).max_time_s, 150);
  EXPECT_EQ(parse({"--max-time", "12:30:05"}).max_time_s, 45005);
  EXPECT_EQ(parse({"--max-time", "01:12:30:05"}).max_time_s, 131405);
  for (const char* text : {"::", "1:2:3:4:5", "00:00", "a", "-1", "1:-2"})
    EXPECT_ERROR(ArgumentError, parse({"--max-time", text}), "--max-time");
}

TEST(CadenceFlags, EarlyStopTakesOptionsAfterCommas) {
  const TrainerConfig config =
      parse({"--early-stop", "val_psnr:10,min_delta=0.001,mode=max,stop_at=30,diverge_at=5"});
  ASSERT_TRUE(config.early_stop);
  EXPECT_EQ(config.early_stop->metric, "val_psnr");
  EXPECT_EQ(config.early_stop->patience, 10);
  EXPECT_EQ(config.early_stop->min_delta, 0.001);
  EXPECT_EQ(config.early_stop->goal, Goal::maximum);
  EXPECT_EQ(config.early_stop->stop_at, 30);
  EXPECT_EQ(config.early_stop->diverge_at, 5);
  const auto line = [](const char* text) { return message_of([&] { parse({"--early-stop", text}); }); };
  const char* const flag = "--early-stop";
  EXPECT_TRUE(
      names(line("val_loss:3,delta=1"), {flag, "min_delta", "mode", "stop_at", "diverge_at", "'delta=1'"}));
  EXPECT_TRUE(names(line("val_loss:3,min_delta=-1"), {flag, "min_delta", "0", "'min_delta=-1'"}));
  EXPECT_TRUE(names(line("val_loss:3,stop_at=nan"), {flag, "stop_at", "'stop_at=nan'"}));
  EXPECT_TRUE(names(line("val_loss:3,mode=up"), {flag, "min", "max", "'up'"}));
  EXPECT_TRUE(names(line("val_loss:3,"), {flag, "min_delta", "mode", "''"}));
}

TEST(CadenceFlags, RejectsInvalidValues) {
  EXPECT_ERROR(ArgumentError, parse({"--val-every", "0"}), "--val-every", "0");
  EXPECT_ERROR(ArgumentError, parse({"--val-every", "1x"}), "--val-every", "5e", "'1x'");
  EXPECT_ERROR(ArgumentError, parse({"--limit-train-batches", "0"}), "--limit-train-batches", "1", "0");
  EXPECT_ERROR(ArgumentError, parse({"--limit-train-batches", "1.5"}), "--limit-train-batches", "1.0", "1.5");
  EXPECT_ERROR(ArgumentError, parse({"--fast-dev-run=-1"}), "--fast-dev-run", "1", "-1");
  EXPECT_ERROR(ArgumentError, parse({"--fast-dev-run=x"}), "--fast-dev-run", "'x'");
}

}  // namespace athanor::test::cadence_test
