#include <csignal>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "optim/adam.h"
#include "optim/muon.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run_main.h"

namespace athanor::resume_test {

using namespace test;

using Resume = ResumeTest;

// Equal, bit for bit ---------------------------------------------------------------------------------------

TEST_F(Resume, FromEveryStepEqualsTheRunThatNeverStopped) {
  expect_equal_from_everywhere(test::resume_config(), 10);
}

TEST_F(Resume, InBf16Too) {
  TrainerConfig config = test::resume_config();
  config.precision = Precision::bf16;
  expect_equal_from_everywhere(config, 10);
}

TEST_F(Resume, InF16WithALossScaleThatMovesToo) {
  TrainerConfig config = test::resume_config();
  config.precision = Precision::f16;
  config.loss_scaling = LossScaling{.initial = 1048576, .growth_interval = 3};
  const RecordedRun straight = train(config);
  EXPECT_GT(straight.report.steps.skipped_overflow, 0);
  EXPECT_GT(straight.report.steps.applied, 4);
  expect_equal_from_everywhere(config, 10);
}

TEST_F(Resume, WithAnAverageAndClippingAndOutliersToo) {
  TrainerConfig config = test::resume_config();
  config.ema_decay = 0.9;
  config.clip_norm = 0.5;
  config.clip_value = 0.2;
  config.skip_outliers = 4;
  config.val_batch_size = 7;
  expect_equal_from_everywhere(config, 10);
}

TEST_F(Resume, WhenItIsStoppedEarlyToo) {
  TrainerConfig config = test::resume_config();
  config.epochs = 9;
  config.early_stop = EarlyStop{"val_loss", 2};
  config.momentum = 0;
  config.schedule = [](double, std::int64_t) { return schedules::constant(3.0); };  // far too much
  const RecordedRun straight = train(config);
  ASSERT_EQ(straight.report.stopped_by, StoppedBy::early_stop);
  ASSERT_NE(straight.report.weights_hash, straight.epochs.back().weights_hash);  // the best are put back
  expect_equal_from_everywhere(config, straight.steps.size());
}

// No validation gains 100, so it stops after the third.
TEST_F(Resume, ARunThatStoppedEarlyGoesOnWithMorePatienceOrEpochs) {
  TrainerConfig config = test::resume_config();
  config.epochs = 9;
  config.early_stop = EarlyStop{"val_loss", 2, {}, 100};
  const RecordedRun stopped = train(saving(config, 0));
  ASSERT_EQ(stopped.report.stopped_by, StoppedBy::early_stop);
  ASSERT_EQ(stopped.report.epochs, 3);
  const std::string last = file(std::ssize(stopped.steps)).string();
  const RecordedRun same = train(from(config, last));
  EXPECT_TRUE(same.steps.empty());
  EXPECT_TRUE(test::names(same.nothing_to_do, {"--epochs", "--early-stop"}));

  TrainerConfig patient = config;
  patient.early_stop->patience = 100;
  const RecordedRun to_the_end = train(from(patient, last));
  EXPECT_EQ(to_the_end.report.stopped_by, StoppedBy::epochs);
  EXPECT_EQ(to_the_end.report.epochs, 9);
  TrainerConfig longer = config;
  longer.epochs = 12;
  const RecordedRun extended = train(from(longer, last));
  EXPECT_EQ(extended.report.stopped_by, StoppedBy::early_stop);
  EXPECT_EQ(extended.report.epochs, 5) << "it has all its patience again";

  TrainerConfig other = config;
  other.early_stop->metric = "train_loss";
  EXPECT_ERROR(ArgumentError, train(from(other, last)), "--resume", "--early-stop", "train_loss:2",
               "val_loss:2");
}

TEST_F(Resume, WithMaxStepsInTheMiddleOfAnEpochToo) {
  TrainerConfig config = test::resume_config();
  config.max_steps = 8;
  const RecordedRun straight = train(config);
  ASSERT_EQ(straight.report.stopped_by, StoppedBy::max_steps);
  expect_same_end(train(saving(config, 3)), straight);
  EXPECT_EQ(files(), 3u);  // of steps 3, 6 and 8
  for (const std::int64_t step : {3, 6, 8}) {
    SCOPED_TRACE(step);
    const RecordedRun resumed = train(from(config, file(step).string()));
    expect_same_end(resumed, straight);
    EXPECT_EQ(resumed.steps.size(), static_cast<std::size_t>(8 - step));
    EXPECT_EQ(resumed.epochs.size(), step == 3 ? 2u : 1u);
  }
}

TEST_F(Resume, WithOtherOptimizersToo) {
  TrainerConfig adam = test::resume_config(), muon = adam;
  adam.lr = 0.01;
  adam.optimizer = [](ParameterArena& arena) { return std::make_unique<AdamW>(arena); };
  muon.lr = 0.02;
  muon.optimizer = [](ParameterArena& arena) {
    return std::make_unique<Muon>(arena, MuonOptions{}, AdamWOptions{}, 0.1f);
  };
  for (const TrainerConfig& config : {adam, muon}) {
    std::filesystem::remove_all(folder());
    const RecordedRun straight = train(config);
    train(saving(config, 4));
    expect_same_end(train(from(config, file(4).string())), straight);
  }
  EXPECT_ERROR(ArgumentError, train(from(adam, file(4).string())), "--resume", "--optimizer", "adamw",
               "muon");
}

TEST_F(Resume, TimesContinueToo) {
  const TrainerConfig config = saving(test::resume_config(), 4);
  const RecordedRun whole = train(config);
  const double at_4 = load_checkpoint(file(4)).real("run.elapsed_s");
  const RecordedRun resumed = train(from(test::resume_config(), file(4).string()));
  EXPECT_GT(at_4, 0);
  EXPECT_LT(at_4, whole.report.wall_s);
  EXPECT_GT(resumed.report.wall_s, at_4);
  EXPECT_GE(resumed.epochs[0].wall_s, at_4);
  TrainerConfig limited = test::resume_config();
  limited.max_time_s = at_4 / 2;  // is over already
  const RecordedRun over = train(from(limited, file(4).string()));
  EXPECT_EQ(over.report.stopped_by, StoppedBy::max_time);
  EXPECT_TRUE(over.steps.empty());
}

// Ended from outside ---------------------------------------------------------------------------------------

TEST_F(Resume, AfterASignalInAStepEqualsTheRunThatNeverStopped) {
  const RecordedRun straight = train(test::resume_config());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (std::int64_t at = 1; at <= 10; ++at) {
      SCOPED_TRACE(at);
      std::filesystem::remove_all(folder());
      TrainerConfig config = saving(test::resume_config(), 0);
      const RecordedRun ended = train(config, [&](Trainer&, const StepInfo& step) {
        if (step.attempted == at) std::raise(signal);
      });
      EXPECT_EQ(ended.report.stopped_by, StoppedBy::signal);
      EXPECT_EQ(exit_code(ended.report), 128 + signal);
      EXPECT_EQ(ended.report.checkpoint, file(at));
      EXPECT_EQ(ended.epochs.size(), at > 5 ? 1u : 0u);
      const RecordedRun resumed = train(from(config, "auto"));
      expect_same_end(resumed, straight);
      EXPECT_EQ(ended.epochs.size() + resumed.epochs.size(),
                straight.epochs.size());  // none twice, none lost
      EXPECT_EQ(ended.steps.size() + resumed.steps.size(), straight.steps.size());
      EXPECT_TRUE(has_note(resumed, {file(at).string(), fmt::format("{} of 10 steps", at)}));
    }
  }
}

TEST_F(Resume, AfterASignalInAValidationEqualsTheRunThatNeverStopped) {
  const RecordedRun straight = train(test::resume_config());
  for (const std::int64_t every : {0, 1, 3}) {
    for (const int validation : {1, 2}) {
      SCOPED_TRACE(validation);
      std::filesystem::remove_all(folder());
      const TrainerConfig config = saving(test::resume_config(), every);
      ResumeNet model;
      int validations = 0;
      model.on_forward = [&](bool training) {
        if (!training && ++validations == validation) std::raise(SIGTERM);
      };
      const RecordedRun ended = train(config, model);
      EXPECT_EQ(ended.report.signal, SIGTERM);
      EXPECT_EQ(ended.report.checkpoint, file(5 * validation));
      const RecordedRun resumed = train(from(config, "auto"));
      expect_same_end(resumed, straight);
      EXPECT_EQ(ended.epochs.size() + resumed.epochs.size(), straight.epochs.size());
      EXPECT_EQ(resumed.epochs.at(0).times.step(), 0) << "all steps were made before";
    }
  }
}

TEST_F(Resume, AfterMaxTimeResumesInTheMiddleOfTheEpoch) {
  const RecordedRun straight = train(test::resume_config());
  TrainerConfig config = saving(test::resume_config(), 0), brief = config;
  brief.max_time_s = 1e-9;  // one step
  EXPECT_EQ(train(brief).report.stopped_by, StoppedBy::max_time);
  const RecordedRun resumed = train(from(config, "auto"));
  EXPECT_EQ(resumed.steps.size(), 9u);
  expect_same_end(resumed, straight);
}

TEST_F(Resume, AFinishedRunHasNothingLeftToDo) {
  const TrainerConfig config = saving(test::resume_config(), 0);
  const RecordedRun straight = train(config), again = train(from(config, "auto"));
  EXPECT_TRUE(again.steps.empty() && again.epochs.empty());
  expect_same_end(again, straight);
  EXPECT_EQ(again.report.stopped_by, StoppedBy::epochs);
}

// Callbacks ------------------------------------------------------------------------------------------------

/// Counts steps over all processes.
class Counter final : public Callback {
 public:
  Counter(std::string name, std::map<std::string, std::int64_t>& counts, bool refuses = false)
      : name_(std::move(name)), counts_(counts), refuses_(refuses) {}
  void on_step_end(Trainer&, const StepInfo&) override { ++counts_[name_]; }
  std::string state_name() const override { return name_; }
  StateDict state_dict(const Trainer&) const override {
    StateDict state;
    state.set("count", counts_[name_]);
    return state;
  }
  void load_state_dict(const Trainer&, const StateDict& state) override {
    ATH_CHECK(!refuses_, "counter: this one refuses");
    counts_[name_] = state.integer("count");
  }

 private:
  std::string name_;
  std::map<std::string, std::int64_t>& counts_;
  bool refuses_;
};

RecordedRun train_with(const TrainerConfig& config, std::map<std::string, std::int64_t>& counts,
                       const std::vector<std::string>& names, bool last_refuses = false) {
  std::vector<std::unique_ptr<Callback>> callbacks;
  for (const std::string& name : names) {
    callbacks.push_back(std::make_unique<Counter>(name, counts, last_refuses && name == names.back()));
  }
  ResumeNet model;
  return train(config, model, {}, std::move(callbacks));
}

TEST_F(Resume, CallbacksResumeUnderTheirNames) {
  std::map<std::string, std::int64_t> counts, resumed;
  const TrainerConfig config = saving(test::resume_config(), 4);
  train_with(config, counts, {"a", "b"});
  EXPECT_EQ(counts, (std::map<std::string, std::int64_t>{{"a", 10}, {"b", 10}}));
  const TrainerConfig again = from(test::resume_config(), file(4).string());
  train_with(again, resumed, {"b", "a"});  // in another order
  EXPECT_EQ(resumed, counts);
  EXPECT_ERROR(ArgumentError, train_with(again, resumed, {"a"}), "--resume", "'callbacks.b.count'");
  EXPECT_ERROR(ArgumentError, train_with(again, resumed, {"a", "b", "c"}), "--resume", "'callbacks.c'",
               "'count'");
  // All or none: the first ones get back what they had.
  std::map<std::string, std::int64_t> kept{{"a", 100}, {"b", 200}};
  EXPECT_ERROR(ArgumentError, train_with(again, kept, {"a", "b"}, true), "counter: this one refuses");
  EXPECT_EQ(kept, (std::map<std::string, std::int64_t>{{"a", 100}, {"b", 200}}));
  EXPECT_ERROR(ArgumentError, train_with(again, kept, {"a", "a"}), "trainer", "'a'");
  EXPECT_ERROR(ArgumentError, train_with(again, kept, {"a.b"}), "trainer", "'a.b'");
}

TEST_F(Resume, MetricsRecordWhereARunResumes) {
  TrainerConfig config = saving(test::resume_config(), 4);
  config.metrics = dir_ / "metrics.jsonl";
  train(config, [](Trainer&, const StepInfo& step) {
    if (step.attempted == 7) std::raise(SIGINT);
  });
  train(from(config, "auto"));
  std::vector<std::string> events;
  std::ifstream in(config.metrics);
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    events.push_back(json["event"]);
    if (events.back() == "resume") {
      EXPECT_EQ(json["attempted_steps"], 7);
      EXPECT_EQ(json["checkpoint"], file(7).string());
    }
  }
  EXPECT_EQ(events, (std::vector<std::string>{"epoch", "end", "resume", "epoch", "end"}));
}

}  // namespace athanor::resume_test
