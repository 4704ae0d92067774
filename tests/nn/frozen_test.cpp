// What a run uses and does not train: a frozen network beside the one that learns, and the frozen part of a
// network whose head learns.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/frozen_cases.h"

namespace athanor::frozen_test {

using test::Distillation;
using test::kSmallSpec;
using test::Net;
using test::small_config;
using test::train;
using test::values_of;

TEST(Frozen, ANetworkStaysAsItIsToTheBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16})
    test::expect_a_network_stays(kCpu, precision);
}

TEST(Frozen, WeightsHaveAPlaceAndNothingElse) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  Distillation task;
  Trainer trainer(config);
  (void)trainer.fit(task, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  EXPECT_EQ(trainer.arena().numel(), task.student.parameter_count());
  EXPECT_EQ(trainer.arena().layout().buffers.size(), task.student.buffers().size());
  for (const std::string& name : trainer.weights().names()) EXPECT_TRUE(name.starts_with("student.")) << name;
}

TEST(Frozen, AResumedRunHasTheWeightsThatItBeganWith) {
  for (const Precision precision : {Precision::f32, Precision::f16})
    test::expect_a_resume_keeps_it(kCpu, precision);
}

template <class T> std::vector<test::RecordedRun> on_ranks(TrainerConfig config, Strategy strategy) {
  config.strategy = strategy;
  config.threads = 1;
  std::vector<test::RecordedRun> runs(2);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    T task;
    runs[static_cast<std::size_t>(transport.rank())] = train(task, config, &transport);
  });
  EXPECT_EQ(runs[0].report.weights_hash, runs[1].report.weights_hash);
  EXPECT_EQ(runs[0].weights, runs[1].weights);
  return runs;
}

TEST(Frozen, RanksShareNothingOfIt) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = small_config();
    config.precision = precision;
    config.sync_bn = true;
    const auto ddp = on_ranks<Distillation>(config, Strategy::ddp);
    const auto zero1 = on_ranks<Distillation>(config, Strategy::zero1);
    EXPECT_EQ(ddp[0].report.weights_hash, zero1[0].report.weights_hash);
    EXPECT_EQ(ddp[0].weights, zero1[0].weights);
  }
  std::vector<std::string> messages(2);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Distillation task(2 + static_cast<std::uint64_t>(transport.rank()));
    messages[static_cast<std::size_t>(transport.rank())] =
        test::message_of([&] { (void)train(task, small_config(), &transport); });
  });
  for (const std::string& message : messages)
    EXPECT_TRUE(test::names(message, {"ranks", "1", "0", "frozen"}));
}

// A part of a network
// ----------------------------------------------------------------------------------------

/// The head learns, and a norm before it; the body stays.
struct FineTuning : Task {
  Net net{1};
  explicit FineTuning(bool freezes = true) {
    network("", net);
    if (freezes) net.body.freeze();
  }
  Tensor training_step(const Batch& batch, Step&) override {
    return cross_entropy(net(batch["image"]), batch["label"]);
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", cross_entropy(net(batch["image"]), batch["label"]));
  }
};

TEST(Frozen, APartOfANetworkStandsStill) {
  FineTuning task;
  const std::vector<double> body = values_of(task.net.body), head = values_of(task.net.head),
                            norm = values_of(task.net.norm);
  const test::RecordedRun run = train(task, small_config());
  EXPECT_EQ(values_of(task.net.body), body);
  EXPECT_NE(values_of(task.net.head), head);
  EXPECT_NE(values_of(task.net.norm), norm);
  EXPECT_LT(run.epochs.back().train_loss, run.epochs.front().train_loss);
  FineTuning all(false);
  (void)train(all, small_config());
  EXPECT_NE(values_of(all.net.body), body) << "this test would not see it move";
}

TEST(Frozen, APartIsTheSameOnRanksAndAfterAResume) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = small_config();
    config.precision = precision;
    const auto ddp = on_ranks<FineTuning>(config, Strategy::ddp);
    const auto zero1 = on_ranks<FineTuning>(config, Strategy::zero1);
    EXPECT_EQ(ddp[0].report.weights_hash, zero1[0].report.weights_hash);
    FineTuning whole;
    const test::RecordedRun expected = train(whole, config);
    const test::TempDir folder;
    config.checkpoint_dir = folder / "saved";
    FineTuning before;
    (void)train(before, config, nullptr, std::make_unique<test::StopAfter>(14));
    config.resume = "auto";
    FineTuning after;
    EXPECT_EQ(train(after, config).report.weights_hash, expected.report.weights_hash);
  }
}

/// The loss is seen through a network that stays: its input must get its gradient.
struct ThroughFrozen : Task {
  nn::Linear first{16, 16};
  Net judge{2};
  ThroughFrozen() {
    network("first", first);
    frozen("judge", judge);
    first.initialize(1);
  }
  Tensor training_step(const Batch& batch, Step&) override {
    return mse_loss(judge(first(flatten(batch["image"]))), judge(flatten(batch["image"])));
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("score", mean(first(flatten(batch["image"]))));
  }
};

TEST(Frozen, GradientsGoThroughIt) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    ThroughFrozen task;
    TrainerConfig config = small_config();
    config.precision = precision;
    const test::RecordedRun run = train(task, config);
    EXPECT_LT(run.epochs.back().train_loss, 0.7 * run.epochs.front().train_loss);
  }
}

// One run after another
// --------------------------------------------------------------------------------------

TEST(Frozen, AnotherRunMayTrainIt) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = small_config();
    config.precision = precision;
    FineTuning task;
    const std::vector<double> body = values_of(task.net.body);
    Trainer trainer(config);
    const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
    const FitReport first = trainer.fit(task, *train_set, *test_set);
    task.net.unfreeze();
    EXPECT_TRUE(task.net.body.norm.training());
    (void)trainer.fit(task, *train_set, *test_set);
    EXPECT_NE(values_of(task.net.body), body);
    EXPECT_EQ(trainer.arena().numel(), task.net.parameter_count());
    EXPECT_EQ(first.stopped_by, StoppedBy::epochs);
  }
}

TEST(Frozen, GetsItsOwnValuesBackAfterAHalfPrecision) {
  TrainerConfig config = small_config();
  config.precision = Precision::f16;
  config.epochs = 1;
  Distillation task;
  const std::vector<double> before = values_of(task.teacher);
  Trainer trainer(config);
  const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
  (void)trainer.fit(task, *train_set, *test_set);
  EXPECT_NE(values_of(task.teacher), before) << "rounded, for this run";
  test::Autoencoder other;
  (void)trainer.fit(other, *train_set, *test_set);
  EXPECT_EQ(values_of(task.teacher), before);
}

// Bad input
// --------------------------------------------------------------------------------------------------

TEST(Frozen, MustStayFrozenWhileARunLasts) {
  struct Unfreezes final : Callback {
    explicit Unfreezes(nn::Module& of) : module(of) {}
    void on_epoch_end(Trainer&, const EpochReport&) override { module.unfreeze(); }
    nn::Module& module;
  };
  FineTuning task;
  EXPECT_ERROR(ArgumentError,
               train(task, small_config(), nullptr, std::make_unique<Unfreezes>(task.net.body)), "frozen",
               "body.linear.weight");
}

TEST(Frozen, SomethingMustBeTrained) {
  FineTuning task;
  task.net.freeze();
  EXPECT_ERROR(ArgumentError, train(task, small_config()), "task", "optimizer", "frozen");
  struct Named : Distillation {
    std::vector<OptimizerSpec> optimizers() const override {
      return {{.name = "all", .networks = {"student", "teacher"}}};
    }
  } named;
  EXPECT_ERROR(ArgumentError, train(named, small_config()), "task", "'all'", "'teacher'");
}

}  // namespace athanor::frozen_test
