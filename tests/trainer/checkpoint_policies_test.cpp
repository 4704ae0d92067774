// When a run saves, which checkpoints it keeps, how it writes them, and for how long it may go on from one.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/limits.h"

namespace athanor::checkpoint_policies_test {

namespace fs = std::filesystem;
using namespace test;

class CheckpointPolicies : public ResumeTest {
 protected:
  std::set<std::int64_t> steps() const {
    const std::vector<std::int64_t> all = CheckpointFolder(folder()).steps();
    return {all.begin(), all.end()};
  }
};

TrainerConfig for_epochs(std::int64_t epochs) {
  TrainerConfig config = resume_config();
  config.epochs = epochs;
  config.early_stop.reset();
  return config;
}

// When -----------------------------------------------------------------------------------------------------

TEST_F(CheckpointPolicies, SigUsr1SavesAndTrainingContinues) {
  const RecordedRun straight = train(for_epochs(2));
  TrainerConfig config = saving(for_epochs(2), 0);
  const RecordedRun run = train(config, [](Trainer&, const StepInfo& step) {
    if (step.attempted == 3) std::raise(SIGUSR1);
  });
  expect_same_end(run, straight);
  EXPECT_EQ(steps(), (std::set<std::int64_t>{3, 5, 10}));
  expect_same_end(train(from(for_epochs(2), file(3).string())), straight);
}

TEST_F(CheckpointPolicies, MinutesCountTrainingTime) {
  TrainerConfig config = resume_config();
  config.checkpoint_every_s = 60;
  const auto strategy = ParallelStrategy::make(nullptr, config);
  RunClock clock;
  Limits limits(config, *strategy, clock);
  limits.after_step(1);
  EXPECT_FALSE(limits.take_save_request());
  clock.add(61);
  limits.after_step(2);
  EXPECT_TRUE(limits.take_save_request());
  EXPECT_FALSE(limits.take_save_request()) << "once";
  EXPECT_FALSE(limits.stopped());
  limits.saved();
  clock.add(58);
  limits.after_step(3);
  EXPECT_FALSE(limits.take_save_request());
  clock.add(2);
  limits.after_step(4);
  EXPECT_TRUE(limits.take_save_request());
}

TEST_F(CheckpointPolicies, TimeReplacesEpochs) {
  TrainerConfig config = saving(for_epochs(2), 0);
  config.checkpoint_every_s = 1e6;
  train(config);
  EXPECT_EQ(steps(), (std::set<std::int64_t>{10})) << "the end alone";
  fs::remove_all(folder());
  config.checkpoint_every_s = 1e-9;
  train(config);
  EXPECT_EQ(steps().size(), 10u);
}

// Which ----------------------------------------------------------------------------------------------------

TEST_F(CheckpointPolicies, TheBestAreKeptBesideTheNewest) {
  TrainerConfig config = saving(for_epochs(8), 3);
  config.checkpoint_keep = 2;
  config.save_top_k = 2;
  config.early_stop = EarlyStop{"val_loss", EarlyStop::kNever};
  config.schedule = [](double, std::int64_t) { return schedules::constant(1.5); };  // goes up and down
  const RecordedRun run = train(config);
  std::vector<std::pair<double, std::int64_t>> by_loss;
  for (const EpochReport& epoch : run.epochs) by_loss.emplace_back(epoch.val_loss, epoch.epoch * 5);
  std::sort(by_loss.begin(), by_loss.end());
  EXPECT_EQ(steps(), (std::set<std::int64_t>{39, 40, by_loss[0].second, by_loss[1].second}));
  EXPECT_TRUE(
      has_note(run, {"val_loss", fmt::format("{:.4g}", by_loss[0].first), fmt::to_string(by_loss[0].second),
                     fmt::format("{:.4g}", by_loss[1].first), fmt::to_string(by_loss[1].second)}));
  ASSERT_LT(by_loss[0].second, 39) << "else this shows nothing";

  // The same where the run is interrupted: it remembers.
  const std::set<std::int64_t> whole = steps();
  fs::remove_all(folder());
  TrainerConfig half = config;
  half.max_time_s = 1e-9;
  for (int i = 0; i < 100 && train(from(half, "auto")).report.stopped_by == StoppedBy::max_time; ++i)
    half.max_time_s = std::numeric_limits<double>::infinity();
  EXPECT_EQ(steps(), whole);
}

TEST_F(CheckpointPolicies, TheBestMayBeWithinAnEpoch) {
  TrainerConfig config = saving(for_epochs(4), 2);
  config.val_every = {2, false};
  config.checkpoint_keep = config.save_top_k = 1;
  config.early_stop = EarlyStop{"val_loss", EarlyStop::kNever};
  config.schedule = [](double, std::int64_t) { return schedules::constant(1.5); };
  std::vector<std::pair<double, std::int64_t>> losses;
  std::vector<std::unique_ptr<Callback>> callbacks;
  callbacks.push_back(on_validated([&](Trainer&, const EpochReport& report) {
    losses.emplace_back(report.val_loss, report.steps.attempted());
  }));
  ResumeNet model;
  train(config, model, {}, std::move(callbacks));
  const std::int64_t best = std::min_element(losses.begin(), losses.end())->second;
  EXPECT_EQ(steps(), (std::set<std::int64_t>{20, best}));
  ASSERT_NE(best % 5, 0) << "else this shows nothing";
}

TEST_F(CheckpointPolicies, TheBestNeedAMetric) {
  TrainerConfig config = saving(for_epochs(1), 0);
  config.save_top_k = 1;
  EXPECT_ERROR(ArgumentError, train(config), "--save-top-k", "--monitor");
  config.early_stop = EarlyStop{"val_loss", EarlyStop::kNever};
  config.checkpoint_dir.clear();
  EXPECT_ERROR(ArgumentError, train(config), "--save-top-k", "--checkpoint-dir");
}

// How ------------------------------------------------------------------------------------------------------

TEST_F(CheckpointPolicies, WritesACopyWhileTrainingContinues) {
  const RecordedRun straight = train(for_epochs(2));
  TrainerConfig config = saving(for_epochs(2), 1);
  config.async_checkpoints = true;
  expect_same_end(train(config), straight);
  EXPECT_EQ(steps().size(), 10u);
  for (std::int64_t step = 1; step <= 10; ++step) {
    SCOPED_TRACE(step);
    expect_same_end(train(from(for_epochs(2), file(step).string())), straight);
  }
}

TEST_F(CheckpointPolicies, AFailedBackgroundSaveEndsTheRun) {
  TrainerConfig config = saving(for_epochs(2), 1);
  config.async_checkpoints = true;
  const fs::path taken = file(4);
  const auto take = [&](Trainer&, const StepInfo& step) {
    if (step.attempted == 3) fs::create_directories(taken / "by a folder");
  };
  EXPECT_ERROR(IoError, train(config, take), folder().string(), std::strerror(EISDIR));
}

// For how long ---------------------------------------------------------------------------------------------

TEST_F(CheckpointPolicies, ALongerRunKeepsItsLearningRatesAndThenTheLast) {
  const auto made_for_ten = [](double lr, std::int64_t) {
    return Schedule([of_ten = schedules::one_cycle(
                         {.max_rate = lr, .total = 10, .rise = 0.25, .final_div_factor = 1000})](
                        std::int64_t step) { return of_ten(std::min<std::int64_t>(step, 9)); });
  };
  TrainerConfig whole = for_epochs(4);
  whole.schedule = made_for_ten;
  const RecordedRun straight = train(whole);
  train(saving(for_epochs(2), 3));
  for (const std::int64_t step : {3, 9, 10}) {
    SCOPED_TRACE(step);
    const RecordedRun longer = train(from(for_epochs(4), file(step).string()));
    expect_same_end(longer, straight);
    EXPECT_TRUE(has_note(longer, {"10 steps"}));
  }
  // What a longer run has saved goes on in the same way, and can be made longer still.
  const RecordedRun third = train(from(saving(for_epochs(3), 0), "auto"));
  EXPECT_EQ(third.report.epochs, 3);
  expect_same_end(train(from(for_epochs(4), file(15).string())), straight);
  EXPECT_ERROR(ArgumentError, train(from(for_epochs(2), file(15).string())), "--resume", file(15).string(),
               "--epochs", "2", "3");
}

TEST_F(CheckpointPolicies, MoreStepsAreALongerRunToo) {
  TrainerConfig config = saving(for_epochs(4), 0);
  config.max_steps = 4;
  train(config);
  config.max_steps = 7;
  const RecordedRun longer = train(from(config, "auto"));
  EXPECT_EQ(longer.steps.size(), 3u);
  EXPECT_TRUE(has_note(longer, {"4 steps"}));
}

}  // namespace athanor::checkpoint_policies_test
