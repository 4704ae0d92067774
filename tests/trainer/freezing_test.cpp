// --freeze: parts of a network that do not train, for a whole run or for its first epochs.
#include "trainer/freezing.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/frozen_cases.h"

namespace athanor::freezing_test {

using test::kSmallSpec;
using test::Net;
using test::small_config;
using test::train;
using test::values_of;

struct Training : Task {
  Net net{1};
  Training() { network("", net); }
  Tensor training_step(const Batch& batch, Step&) override {
    return cross_entropy(net(batch["image"]), batch["label"]);
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", cross_entropy(net(batch["image"]), batch["label"]));
  }
};

/// A part's values, parameters and statistics, as they are after each epoch.
struct Watch final : Callback {
  explicit Watch(const nn::Module& of) : module(of) {}
  void on_epoch_end(Trainer&, const EpochReport&) override { after.push_back(values_of(module)); }
  const nn::Module& module;
  std::vector<std::vector<double>> after;
};

TrainerConfig config_of(std::vector<Freeze> freeze, Precision precision = Precision::f32) {
  TrainerConfig config = small_config();
  config.epochs = 4;
  config.precision = precision;
  config.freeze = std::move(freeze);
  return config;
}

std::vector<std::vector<double>> body_after_epochs(const TrainerConfig& config) {
  Training task;
  std::vector<std::vector<double>> all = {values_of(task.net.body)};
  auto watch = std::make_unique<Watch>(task.net.body);
  Watch& watched = *watch;
  Trainer trainer(config);
  trainer.add(std::move(watch));
  (void)trainer.fit(task, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  all.insert(all.end(), watched.after.begin(), watched.after.end());
  return all;
}

TEST(Freezing, AFrozenPartKeepsItsBitsForTheWholeRun) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    Training task;
    const std::vector<double> body = values_of(task.net.body), head = values_of(task.net.head);
    Trainer trainer(config_of({{"body"}}, precision));
    (void)trainer.fit(task, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
    EXPECT_NE(values_of(task.net.head), head);
    EXPECT_EQ(trainer.arena().numel(), 24 + 65);
    if (precision == Precision::f32) {
      EXPECT_EQ(values_of(task.net.body), body);
    }
  }
}

TEST(Freezing, APartTrainsAfterItsEpochs) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const auto epochs = body_after_epochs(config_of({{"body", 2}}, precision));
    ASSERT_EQ(epochs.size(), 5u);
    EXPECT_EQ(epochs[2], epochs[1]);
    if (precision == Precision::f32) {
      EXPECT_EQ(epochs[1], epochs[0]);
    }
    EXPECT_NE(epochs[3], epochs[2]);
    EXPECT_NE(epochs[4], epochs[3]);
  }
  const auto all = body_after_epochs(config_of({}));
  EXPECT_NE(all[1], all[0]) << "this test would not see it move";
}

TEST(Freezing, PartsOfAPartMayStayLonger) {
  const auto epochs = body_after_epochs(config_of({{"body", 1}, {"body.norm", 3}}));
  const auto weights = [&](std::size_t epoch) {  // of body.linear: 16 * 12 and 12
    return std::vector<double>(epochs[epoch].begin(), epochs[epoch].begin() + 204);
  };
  const auto norm = [&](std::size_t epoch) {
    return std::vector<double>(epochs[epoch].begin() + 204, epochs[epoch].end());
  };
  EXPECT_EQ(weights(1), weights(0));
  EXPECT_NE(weights(2), weights(1));
  EXPECT_EQ(norm(3), norm(0));
  EXPECT_NE(norm(4), norm(3));
  EXPECT_EQ(body_after_epochs(config_of({{"body", 1}, {"body.linear"}}))[4][0], epochs[0][0]);
}

TEST(Freezing, AResumedRunReleasesItAtTheSameStep) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = config_of({{"body", 2}, {"norm"}}, precision);
    config.ema_decay = 0.9;
    Training whole;
    const test::RecordedRun expected = train(whole, config);
    const auto last = static_cast<std::int64_t>(expected.steps.size());
    for (const std::int64_t stop : {std::int64_t{1}, last / 2 - 1, last / 2, last / 2 + 1, last - 1}) {
      const test::TempDir folder;
      config.checkpoint_dir = folder / "saved";
      config.resume = {};
      Training before;
      (void)train(before, config, nullptr, std::make_unique<test::StopAfter>(stop));
      config.resume = "auto";
      Training after;
      const test::RecordedRun resumed = train(after, config);
      EXPECT_EQ(resumed.report.weights_hash, expected.report.weights_hash) << stop;
      EXPECT_EQ(values_of(after.net), values_of(whole.net)) << stop;
    }
    config.checkpoint_dir.clear();
    config.resume.clear();
  }
}

TEST(Freezing, RanksReleaseItTogether) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = config_of({{"body", 2}}, precision);
    config.threads = 1;
    std::vector<std::vector<double>> values;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      config.strategy = strategy;
      std::vector<test::RecordedRun> runs(2);
      dist::run_ranks(2, [&](dist::Transport& transport) {
        Training task;
        runs[static_cast<std::size_t>(transport.rank())] = train(task, config, &transport);
      });
      EXPECT_EQ(runs[0].weights, runs[1].weights);
      EXPECT_TRUE(runs[0].notes.empty() || !test::holds(runs[0].notes.back(), "gradient"))
          << runs[0].notes.back();
      values.push_back(runs[0].weights);
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

TEST(Freezing, AFollowingRunMayTrainAll) {
  Training task;
  const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
  Trainer trainer(config_of({{"body", 9}}));  // not released in this run
  const std::vector<double> body = values_of(task.net.body);
  (void)trainer.fit(task, *train_set, *test_set);
  EXPECT_EQ(values_of(task.net.body), body);
  Trainer next(config_of({{"body", 1}}));
  (void)next.fit(task, *train_set, *test_set);
  EXPECT_NE(values_of(task.net.body), body);
}

TEST(Freezing, ResumingNeedsTheSameFreezing) {
  const test::TempDir folder;
  TrainerConfig config = config_of({{"body", 2}});
  config.checkpoint_dir = folder / "saved";
  Training task;
  (void)train(task, config, nullptr, std::make_unique<test::StopAfter>(3));
  config.resume = "auto";
  config.freeze = {};
  Training other;
  EXPECT_ERROR(ArgumentError, train(other, config), "--resume", "--freeze", "body:2");
}

TEST(Freezing, UnknownNamesListTheKnownOnes) {
  Training task;
  EXPECT_ERROR(ArgumentError, train(task, config_of({{"boddy"}})), "--freeze", "body", "norm", "head",
               "'boddy'", "'body'");
  Training again;
  EXPECT_ERROR(ArgumentError, train(again, config_of({{"body.linear.weight", 2}})), "--freeze",
               "'body.linear.weight'");
}

TEST(Freezing, SomethingMustBeLeft) {
  Training task;
  EXPECT_ERROR(ArgumentError, train(task, config_of({{"body", 2}, {"norm", 2}, {"head", 1}})), "--freeze",
               "epoch 1");
  Training again;
  EXPECT_ERROR(ArgumentError, train(again, config_of({{"body"}, {"norm"}, {"head"}})), "task", "optimizer");
}

}  // namespace athanor::freezing_test
