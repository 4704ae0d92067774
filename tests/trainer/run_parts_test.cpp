// The parts of a training, each without a Trainer.
#include <cmath>
#include <csignal>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/copy.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/run_checkpoints.h"
#include "trainer/classifier.h"
#include "trainer/data_pipeline.h"
#include "trainer/limits.h"
#include "trainer/loggers/reports.h"
#include "trainer/overflow.h"
#include "trainer/validation.h"

namespace athanor::run_parts_test {

using test::kSmallSpec;
using test::Perceptron;
using test::small_config;

/// What several parts need of each other.
struct Parts {
  explicit Parts(TrainerConfig of) : config(std::move(of)) {}
  TrainerConfig config;
  std::unique_ptr<ParallelStrategy> strategy = ParallelStrategy::make(nullptr, config);
  RunClock clock;
  Limits limits{config, *strategy, clock};
  Times total;
  PhaseTimes times{total};
};

// Limits ---------------------------------------------------------------------------------------------------

TEST(Limits, MaxTimeDoesNotCountTuning) {
  TrainerConfig config = small_config();
  config.max_time_s = 10;
  VendorStats vendor;
  RunClock clock(vendor);
  const auto strategy = ParallelStrategy::make(nullptr, config);
  Limits limits(config, *strategy, clock);
  clock.add(15);
  vendor.tuning_s += 7;
  limits.after_step(1);
  EXPECT_FALSE(limits.stopped());
  clock.add(3);
  limits.after_step(2);
  EXPECT_TRUE(limits.stopped());
  EXPECT_EQ(limits.ended().reason, StoppedBy::max_time);
}

TEST(Limits, TheFirstReasonCounts) {
  Parts parts(small_config());
  parts.limits.after_step(7);
  EXPECT_FALSE(parts.limits.stopped());
  parts.limits.stop({StoppedBy::early_stop, "enough"});
  EXPECT_FALSE(parts.limits.stopped()) << "before ranks have agreed, and the step is over";
  parts.limits.stop({StoppedBy::max_time, "late"});
  parts.limits.after_step(8);
  EXPECT_TRUE(parts.limits.stopped());
  EXPECT_EQ(parts.limits.ended().reason, StoppedBy::early_stop);
  EXPECT_EQ(parts.limits.ended().why, "enough");
}

TEST(Limits, StepsTimeAndSignalsEndIt) {
  TrainerConfig config = small_config();
  config.max_steps = 3;
  config.max_time_s = 100;
  Parts by_steps(config), by_time(config), by_signal(config);
  for (const std::int64_t step : {1, 2, 3}) {
    EXPECT_FALSE(by_steps.limits.stopped());
    by_steps.limits.after_step(step);
  }
  EXPECT_EQ(by_steps.limits.ended().reason, StoppedBy::max_steps);
  by_time.clock.add(101);
  by_time.limits.agree();
  EXPECT_FALSE(by_time.limits.stopped()) << "within a validation, time is not looked at";
  by_time.limits.agree(true);
  EXPECT_EQ(by_time.limits.ended().reason, StoppedBy::max_time);
  EXPECT_TRUE(test::names(by_time.limits.ended().why, {"--max-time", "1 min 41 s"}));
  std::raise(SIGINT);
  by_signal.limits.after_step(1);
  EXPECT_EQ(by_signal.limits.ended().reason, StoppedBy::signal);
  EXPECT_EQ(by_signal.limits.signal(), SIGINT);
}

TEST(Limits, TheVoteOfOtherRanksIsTaken) {
  Parts parts(small_config());
  EXPECT_FALSE(parts.limits.take({}));
  EXPECT_TRUE(parts.limits.take({.reason = static_cast<int>(StoppedBy::early_stop), .rank = 2}));
  EXPECT_EQ(parts.limits.ended().reason, StoppedBy::early_stop);
  EXPECT_TRUE(test::names(parts.limits.ended().why, {"rank 2"}));
}

// Reports --------------------------------------------------------------------------------------------------

TEST(Reports, SayWhereARunStands) {
  RunPosition position;
  position.epoch = 2;
  position.epoch_samples = 300;
  position.epoch_steps = 3;
  position.attempted = 23;
  position.epoch_began_s = 10;
  position.trained_samples = 500;
  position.train_s = 5;
  StepState state;
  state.applied_steps = 20;
  state.overflow_steps = 2;
  state.outlier_steps = 1;
  state.loss_scale = 8;
  state.found_outlier = 1;
  state.learning_rate[0] = 0.5f;
  const StepInfo step = info_of(position, 14);
  EXPECT_EQ(step.epoch, 3);
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.attempted, 23);
  EXPECT_EQ(step.epoch_s, 4);
  EXPECT_EQ(report_of(state).result, StepResult::skipped_outlier);
  EXPECT_EQ(report_of(state).attempted, 23);
  position.validation = {2, 0.25, 50};
  EpochReport epoch;
  fill(epoch, position, state, {1, 0.5, 300}, position.validation, 6, 16);
  EXPECT_EQ(epoch.epoch, 3);
  EXPECT_EQ(epoch.train_loss, 1);
  EXPECT_EQ(epoch.val_accuracy, 0.25);
  EXPECT_EQ(epoch.images_per_s, 50);
  EXPECT_EQ(epoch.learning_rate, 0.5f);
  EXPECT_EQ(epoch.steps.skipped(), 3);
  const FitReport whole = report_of(position, state, {2, 0.25, 50}, 20);
  EXPECT_EQ(whole.images_per_s, 100);
  EXPECT_EQ(whole.test_loss, 2);
  EXPECT_EQ(whole.epochs, 2);
}

// Validation -----------------------------------------------------------------------------------------------

struct Validated : Parts {
  Validated() : Parts(small_config()) {}
  std::unique_ptr<InMemoryDataset> train = synthetic(kSmallSpec, 64, 1),
                                   held_out = synthetic(kSmallSpec, 50, 2);
  DataPipeline pipeline{config, *strategy, *train, held_out.get(), {}};
  Perceptron model;
  Classifier task{model, 5, 0.3};
  Validation validation{task, pipeline, *strategy, limits, config};
};

// Else a wrong count of steps would train the last batch again and again.
TEST(Batches, EndWithTheirEpoch) {
  Validated parts;
  parts.pipeline.start_epoch(0, 0);
  Batch batch;
  for (int i = 0; i < 4; ++i) parts.pipeline.next(batch, parts.times);
  EXPECT_ERROR(ArgumentError, parts.pipeline.next(batch, parts.times), "data", "64");
}

TEST(Validation, MeasuresAllThatIsHeldOut) {
  Validated parts;
  parts.model.train();
  const auto metrics = parts.validation.run(0, {}, parts.times);
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->samples, 50);
  EXPECT_NEAR(metrics->loss, std::log(5.0), 0.5) << "of weights that have learnt nothing, not smoothed";
  EXPECT_TRUE(parts.model.training());
  EXPECT_GT(parts.total.validation, 0);
  EXPECT_EQ(parts.validation.run(0, {}, parts.times)->loss, metrics->loss);
  EXPECT_EQ(parts.validation.run(0, {}, parts.times, nullptr, 0)->samples, 0);
}

TEST(Validation, ASignalEndsItWithoutAResult) {
  Validated parts;
  parts.model.on_validation = [](int, const Tensor&) { std::raise(SIGTERM); };
  EXPECT_FALSE(parts.validation.run(0, {}, parts.times));
  EXPECT_EQ(parts.limits.signal(), SIGTERM);
}

TEST(Validation, IsOfTheAverageWhereThereIsOne) {
  Validated parts;
  ParameterArena arena(parts.model.parameters(), parts.model.buffers());
  parts.strategy->attach(arena, parts.times);
  Ema average(arena);
  const double before = parts.validation.run(0, {}, parts.times)->loss;
  kernels::fill(cpu_context(), arena.parts()[0].masters, 0);
  EXPECT_NEAR(parts.validation.run(0, {}, parts.times)->loss, std::log(5.0), 1e-6);
  EXPECT_EQ(parts.validation.run(0, {&average}, parts.times)->loss, before);
  EXPECT_FALSE(average.swapped());
  EXPECT_EQ(arena.parts()[0].masters.data<float>()[0], 0);
}

// Checkpoints ----------------------------------------------------------------------------------------------

struct Saved : Parts {
  explicit Saved(TrainerConfig of) : Parts(std::move(of)) {}
  StepBuffer step{kCpu};
  MetricSums metrics{kCpu};
  RunCheckpoints checkpoints{config, *strategy, step, metrics};
  RunPosition position;
  std::vector<Setting> settings{{"lr", "--lr", "0.1"}, {"schedule_steps", "--max-steps", "30"}};
  std::vector<StatePart> parts() {
    return {{"settings.", [this] { return state_of(settings); },
             [this](const StateDict& state) { check_settings(state, settings, true); }},
            {"run.", [this] { return state_of(position); },
             [this](const StateDict& state) { position = position_from(state); }},
            checkpoints.metrics_part()};
  }
  std::optional<RunPosition> open(std::int64_t total_steps) {
    return checkpoints.open([this](std::int64_t) { return settings; }, total_steps);
  }
  void save() { checkpoints.save(position, limits, clock, times, parts()); }
};

TEST(RunCheckpoints, APositionIsSavedOnceAndResumed) {
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.checkpoint_dir = folder / "saved";
  config.checkpoint_every = 2;
  {
    Saved run(config);
    EXPECT_FALSE(run.open(30));
    EXPECT_TRUE(run.checkpoints.due(4));
    EXPECT_FALSE(run.checkpoints.due(5));
    run.metrics.write("", {4, 3, 8});
    run.position.attempted = 4;
    run.save();
    EXPECT_EQ(run.checkpoints.newest(), folder.path() / "saved" / "step-00000004.safetensors");
    const auto written = std::filesystem::last_write_time(run.checkpoints.newest());
    run.save();
    EXPECT_EQ(std::filesystem::last_write_time(run.checkpoints.newest()), written);
    EXPECT_GT(run.total.saving, 0);
  }
  config.resume = "auto";
  Saved again(config);
  const auto position = again.open(30);
  ASSERT_TRUE(position);
  EXPECT_EQ(position->attempted, 4);
  EXPECT_TRUE(test::names(again.checkpoints.notes().at(0), {"4 of 30 steps"}));
  again.checkpoints.resume(again.parts());
  EXPECT_EQ(again.metrics.read(), (std::vector<double>{4, 3, 8}));
}

TEST(RunCheckpoints, ADivergedStateIsNotSaved) {
  const test::TempDir folder;
  TrainerConfig config = small_config();
  config.checkpoint_dir = folder / "saved";
  Saved run(config);
  (void)run.open(30);
  run.position.attempted = 1;
  run.step->overflows_at_floor = 1;
  run.save();
  run.step->overflows_at_floor = 0;
  run.position.validated = true;
  run.position.validation.finite = false;
  run.save();
  EXPECT_TRUE(run.checkpoints.newest().empty());
  run.position.validation.finite = true;
  run.save();
  EXPECT_FALSE(run.checkpoints.newest().empty());
}

// Overflow -------------------------------------------------------------------------------------------------

TEST(Overflows, AreNamedWithParameterAndOpWhenPatienceEnds) {
  Parts parts(small_config());
  Perceptron model;
  ParameterArena arena(model.parameters(), model.buffers());
  StepBuffer step(kCpu);
  const auto check = [&] {
    check_overflows(step.known(), 4, step, {&arena}, *parts.strategy,
                    [] { throw Error("mul: forward result must be finite"); });
  };
  step->overflows_at_floor = 3;
  EXPECT_NO_THROW(check());
  step->overflows_at_floor = 4;
  EXPECT_ERROR(DivergedError, check(), "trainer", "4", "norm", "mul: forward result must be finite", "--lr");
}

// One rank -------------------------------------------------------------------------------------------------

TEST(ParallelStrategy, OneRankAgreesWithItself) {
  const auto single = ParallelStrategy::make(nullptr, small_config());
  EXPECT_EQ(single->kind(), Strategy::single);
  EXPECT_EQ(single->describe(""), "single");
  EXPECT_EQ(single->describe("mpirun"), "single (mpirun)");
  std::vector<double> values{1, 2};
  single->add_up(values);
  EXPECT_EQ(values, (std::vector<double>{1, 2}));
  EXPECT_EQ(single->broadcast_from_rank0("text"), "text");
  int calls = 0;
  single->run_on_rank0([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(single->run_on_rank0([] { throw IoError("no"); }), IoError);
  EXPECT_EQ(single->cast({.signal = 2}).signal, 2) << "at once";
}

}  // namespace athanor::run_parts_test
