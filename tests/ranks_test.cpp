// A Trainer on several ranks, which are threads here.
#include "trainer/ranks.h"

#include <cmath>
#include <limits>

#include "nn/batch_norm.h"
#include "support/ranks_run.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using test::RankRun;
using test::ranks_config;
using test::train_ranks;

TrainerConfig with(TrainerConfig config, Strategy strategy) {
  config.strategy = strategy;
  return config;
}

void expect_alike(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.weights, runs[0].weights);
    EXPECT_EQ(run.hashes, runs[0].hashes);
    EXPECT_EQ(run.report.weights_hash, runs[0].report.weights_hash);
    EXPECT_EQ(run.report.stopped_by, runs[0].report.stopped_by);
    EXPECT_EQ(run.report.test_loss, runs[0].report.test_loss);
    ASSERT_EQ(run.epochs.size(), runs[0].epochs.size());
    for (std::size_t i = 0; i < run.epochs.size(); ++i) {
      EXPECT_EQ(run.epochs[i].train_loss, runs[0].epochs[i].train_loss);
      EXPECT_EQ(run.epochs[i].train_accuracy, runs[0].epochs[i].train_accuracy);
      EXPECT_EQ(run.epochs[i].val_loss, runs[0].epochs[i].val_loss);
      EXPECT_EQ(run.epochs[i].val_accuracy, runs[0].epochs[i].val_accuracy);
    }
  }
}

TEST(Ranks, DdpIsOneRankOnTheSameSamples) {
  const RankRun one = train_ranks(1, ranks_config())[0];
  for (const int world : {2, 4}) {
    SCOPED_TRACE(world);
    const auto many = train_ranks(world, ranks_config());
    expect_alike(many);
    EXPECT_EQ(many[0].report.steps.applied, 50);
    EXPECT_EQ(many[0].report.world_size, world);
    EXPECT_EQ(many[0].report.strategy, Strategy::ddp);
    const Times& times = many[0].epochs[0].times;
    EXPECT_GT(times.communication, 0);
    EXPECT_GE(times.update, 0);  // agreements between two steps are none of its
    EXPECT_NEAR(many[0].epochs[0].train_loss, one.epochs[0].train_loss, 1e-3);
    EXPECT_NEAR(many[0].epochs[0].val_loss, one.epochs[0].val_loss, 1e-3);
  }
}

TEST(Ranks, Zero1IsDdpBitForBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const int world : {2, 3}) {
      TrainerConfig config = ranks_config();
      config.precision = precision;
      config.max_steps = 20;
      const auto ddp = train_ranks(world, with(config, Strategy::ddp));
      const auto zero1 = train_ranks(world, with(config, Strategy::zero1));
      EXPECT_EQ(zero1[0].report.strategy, Strategy::zero1);
      EXPECT_EQ(zero1[0].report.weights_hash, ddp[0].report.weights_hash);
      EXPECT_EQ(zero1[0].report.test_loss, ddp[0].report.test_loss);
      for (const RankRun& run : zero1) EXPECT_EQ(run.weights, ddp[0].weights);
    }
  }
}

// The weights do not move, so that every rank's logits are those of one.
TEST(Ranks, MetricsCountEverySampleOnce) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0); };
  config.val_batch_size = 7;  // 360 samples: the last batch has three
  const RankRun one = train_ranks(1, config)[0];
  for (const int world : {2, 4}) {
    const auto many = train_ranks(world, config);
    expect_alike(many);
    const EpochReport &a = many[0].epochs[0], &b = one.epochs[0];
    EXPECT_EQ(a.train_accuracy, b.train_accuracy);
    EXPECT_EQ(a.val_accuracy, b.val_accuracy);
    EXPECT_NEAR(a.train_loss, b.train_loss, 1e-6 * b.train_loss);  // means of batches are f32
    EXPECT_NEAR(a.val_loss, b.val_loss, 1e-6 * b.val_loss);
    EXPECT_EQ(many[0].report.weights_hash, one.report.weights_hash);
  }
}

class NormedNet final : public nn::Module {
 public:
  NormedNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(flatten(norm(conv(x)))); }

  nn::Conv2d conv{1, 6, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm{6, {.activation = Activation::relu}};
  nn::Linear out{6 * 64, 10};
};

// Ten times as near to one rank as with norms of each rank's own, which do differ.
TEST(Ranks, SyncBnIsOneRankOnTheSameSamples) {
  TrainerConfig config = ranks_config();
  const RankRun one = train_ranks<NormedNet>(1, config)[0];
  TrainerConfig synced = config;
  synced.sync_bn = true;
  EXPECT_EQ(train_ranks<NormedNet>(1, synced)[0].weights, one.weights);
  const auto apart_from_one = [&](const RankRun& run) {
    return std::fabs(run.epochs[0].train_loss - one.epochs[0].train_loss);
  };
  for (const int world : {2, 8}) {
    SCOPED_TRACE(world);
    const auto own = train_ranks<NormedNet>(world, config), joined = train_ranks<NormedNet>(world, synced);
    expect_alike(joined);
    EXPECT_EQ(joined[0].report.steps.applied, 50);
    EXPECT_LT(10 * apart_from_one(joined[0]), apart_from_one(own[0]));
    EXPECT_NEAR(joined[0].epochs[0].val_loss, one.epochs[0].val_loss, 1e-3);
  }
}

// Three passes a step: 53 passes leave a last step of two.
TEST(Ranks, AccumulationAndShortStepsAreWeighted) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.accumulate = 3;
  const RankRun one = train_ranks(1, config)[0];
  const auto many = train_ranks(2, config);
  expect_alike(many);
  EXPECT_EQ(many[0].report.steps.applied, 18);
  EXPECT_NEAR(many[0].epochs[0].val_loss, one.epochs[0].val_loss, 1e-3);
}

TEST(Ranks, AnInfinityOnOneRankSkipsTheStepOnAll) {
  class Spoiled final : public nn::Module {
   public:
    Spoiled() { register_module("net", net), initialize(1); }
    Tensor forward(const Tensor& x) override {
      // Of a batch of 27, rank 0 has 14 samples and rank 1 has 13.
      if (training() && x.shape()[0] == 13 && ++calls % 5 == 0) {
        Tensor y = net(x);
        y.detach().data<float>()[0] = std::numeric_limits<float>::infinity();
        return y;
      }
      return net(x);
    }
    test::PlainNet net;
    int calls = 0;
  };
  TrainerConfig config = ranks_config();
  config.max_steps = 12;
  config.patience_at_floor = 100;
  const auto ddp = train_ranks<Spoiled>(2, config);
  expect_alike(ddp);
  EXPECT_EQ(ddp[0].report.steps.skipped_overflow, 2);
  EXPECT_EQ(train_ranks<Spoiled>(2, with(config, Strategy::zero1))[0].report.weights_hash,
            ddp[0].report.weights_hash);
}

// Agreement
// --------------------------------------------------------------------------------------------------

TEST(Ranks, OneThatStopsTakesTheOthersAlong) {
  const auto runs = train_ranks(3, ranks_config(), [](Trainer& trainer, const StepInfo& step) {
    if (trainer.rank() == 2 && step.attempted == 7) trainer.stop(StoppedBy::early_stop, "enough");
  });
  expect_alike(runs);
  EXPECT_EQ(runs[0].report.stopped_by, StoppedBy::early_stop);
  EXPECT_EQ(runs[0].report.steps.applied, 7);
}

TEST(Ranks, TimeIsRank0s) {
  const auto limited = [](int slow) {
    return train_ranks(2, [=](int rank) {
      TrainerConfig config = ranks_config();
      config.max_time_s = rank == slow ? 1e-9 : 1e9;
      return config;
    });
  };
  const auto ended = limited(0);
  expect_alike(ended);
  EXPECT_EQ(ended[0].report.stopped_by, StoppedBy::max_time);
  EXPECT_EQ(ended[0].report.steps.applied, 1);
  EXPECT_EQ(limited(1)[0].report.stopped_by, StoppedBy::max_steps);
}

TEST(Ranks, EarlyStoppingAndItsBestWeightsAreTheSame) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.epochs = 12;
  config.early_stop = EarlyStop{"val_loss", 1};
  config.momentum = 0;
  config.clip_norm = 0;
  config.schedule = [](double, std::int64_t) { return schedules::constant(1.5); };  // far too much
  const auto runs = train_ranks(2, config);
  expect_alike(runs);
  EXPECT_EQ(runs[0].report.stopped_by, StoppedBy::early_stop);
}

TEST(Ranks, OtherSettingsAreNamed) {
  for (const bool rate : {true, false}) {
    const std::string message = test::message_of([&] {
      train_ranks(3, [&](int rank) {
        TrainerConfig config = ranks_config();
        if (rank == 1 && rate) config.lr = 0.06;
        if (rank == 1 && !rate) config.epochs = 2;
        return config;
      });
    });
    EXPECT_NE(message.find("rank 1 differs from rank 0"), std::string::npos) << message;
    EXPECT_NE(message.find(rate ? "lr is '0.06', not '0.05'" : "epochs is '2', not '1'"), std::string::npos)
        << message;
  }
}

TEST(Ranks, WhatCannotBeIsRefused) {
  TrainerConfig config = ranks_config();
  config.batch_size = 2;
  test::expect_one_line(test::message_of([&] { train_ranks(3, config); }), {"--batch-size", "3 ranks"});
  config = ranks_config();
  config.devices = 2;
  test::expect_one_line(test::message_of([&] { train_ranks(1, config); }), {"--devices 2", "run_on_ranks()"});
  config = with(ranks_config(), Strategy::single);
  test::expect_one_line(test::message_of([&] { train_ranks(2, config); }),
                        {"--strategy single", "ddp or zero1"});
}

// Checkpoints
// ------------------------------------------------------------------------------------------------

class RanksResume : public test::ResumeTest {};

TrainerConfig saved_config() {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.epochs = 2;
  config.batch_size = 120;  // 11 steps an epoch
  config.ema_decay = 0.9;
  config.early_stop = EarlyStop{"val_loss", 3};
  return config;
}

TEST_F(RanksResume, AnyNumberOfRanksGoesOn) {
  const auto straight = train_ranks(2, saved_config());
  expect_alike(train_ranks(2, saving(saved_config(), 4)));
  const auto check = [&](std::int64_t step, int world) {
    SCOPED_TRACE(fmt::format("from step {} on {} ranks", step, world));
    const auto resumed = train_ranks(world, from(saved_config(), file(step).string()));
    expect_alike(resumed);
    const RankRun &a = resumed[0], &b = straight[0];
    EXPECT_EQ(a.report.steps.applied, b.report.steps.applied);
    EXPECT_NEAR(a.epochs.back().val_loss, b.epochs.back().val_loss, 1e-3);
    if (world != 2) return;
    EXPECT_EQ(a.report.weights_hash, b.report.weights_hash);
    EXPECT_EQ(a.report.test_loss, b.report.test_loss);
    for (std::size_t i = 1; i <= a.epochs.size(); ++i) {
      EXPECT_EQ(a.epochs[a.epochs.size() - i].train_loss, b.epochs[b.epochs.size() - i].train_loss);
      EXPECT_EQ(a.epochs[a.epochs.size() - i].val_loss, b.epochs[b.epochs.size() - i].val_loss);
    }
  };
  check(4, 2);
  check(16, 2);
  for (const int world : {1, 3}) check(8, world);
}

// ZeRO-1 saves what DDP saves, and goes on with it, on any number of ranks; averages and the best weights
// too.
TEST_F(RanksResume, ShardsGoOnWhole) {
  const auto straight = train_ranks(2, saved_config());
  const auto saved = train_ranks(2, with(saving(saved_config(), 8), Strategy::zero1));
  expect_alike(saved);
  EXPECT_EQ(saved[0].report.weights_hash, straight[0].report.weights_hash);
  EXPECT_EQ(saved[0].report.test_loss, straight[0].report.test_loss);
  for (const Strategy strategy : {Strategy::zero1, Strategy::ddp}) {
    for (const int world : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name_of(strategy), world));
      const auto resumed = train_ranks(world, with(from(saved_config(), file(8).string()), strategy));
      expect_alike(resumed);
      EXPECT_EQ(resumed[0].report.steps.applied, straight[0].report.steps.applied);
      EXPECT_NEAR(resumed[0].epochs.back().val_loss, straight[0].epochs.back().val_loss, 1e-3);
      if (world != 2) continue;
      EXPECT_EQ(resumed[0].report.weights_hash, straight[0].report.weights_hash);
      EXPECT_EQ(resumed[0].report.test_loss, straight[0].report.test_loss);
    }
  }
}

// With batch norm, dropout and augmentation: rank 0's statistics and every rank's random numbers.
TEST_F(RanksResume, RanksHaveRandomNumbersOfTheirOwnAndKeepThem) {
  TrainerConfig config = test::resume_config();
  config.accumulate = 2;
  class Seeds final : public Callback {
   public:
    explicit Seeds(std::vector<std::uint64_t>& seeds) : seeds_(seeds) {}
    void on_step_end(Trainer& trainer, const StepInfo&) override { seeds_.push_back(trainer.state().seed); }
    std::string state_name() const override { return "seeds"; }  // on all ranks

   private:
    std::vector<std::uint64_t>& seeds_;
  };
  class OnRank0 final : public Callback {
    std::string state_name() const override { return "on_rank_0"; }
    StateDict state_dict(const Trainer&) const override {
      StateDict state;
      state.set("value", std::int64_t{7});
      return state;
    }
    void load_state_dict(const Trainer&, const StateDict& state) override {
      EXPECT_EQ(state.integer("value"), 7);
    }
  };
  const auto data = synthetic(test::kResumeSpec, 75, 1), held_out = synthetic(test::kResumeSpec, 30, 2);
  const auto run = [&](const TrainerConfig& options) {
    std::vector<RankRun> runs(2);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      test::ResumeNet net;
      Trainer trainer(options, &transport);
      RankRun& mine = runs[static_cast<std::size_t>(transport.rank())];
      trainer.add(std::make_unique<Seeds>(mine.hashes));
      if (transport.rank() == 0) trainer.add(std::make_unique<OnRank0>());
      mine.report = trainer.fit(net, *data, *held_out);
    });
    return runs;
  };
  const auto straight = run(config);
  EXPECT_EQ(run(saving(config, 3))[0].report.weights_hash, straight[0].report.weights_hash);
  for (const std::int64_t step : {3, 6}) {
    const auto resumed = run(from(config, file(step).string()));
    EXPECT_NE(straight[0].hashes[0], straight[1].hashes[0]);
    EXPECT_EQ(resumed[1].hashes[0], straight[1].hashes[0]);
    EXPECT_EQ(resumed[0].report.weights_hash, straight[0].report.weights_hash);
    EXPECT_EQ(resumed[0].report.test_loss, straight[0].report.test_loss);
  }
}

}  // namespace
}  // namespace athanor
