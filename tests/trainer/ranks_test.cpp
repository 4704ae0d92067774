// A Trainer on several ranks, which are threads here: its results are those of one rank.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"
#include "trainer/parallel_strategy.h"

namespace athanor::ranks_test {

using test::DroppingNet;
using test::expect_alike;
using test::NormedNet;
using test::PlainNet;
using test::ranks_config;
using test::RecordedRun;
using test::train_ranks;
using test::with;

TEST(Ranks, DdpIsOneRankOnTheSameSamples) {
  const RecordedRun one = train_ranks(1, ranks_config())[0];
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

// Two passes a step, of 27 samples: no rank's part begins where a block of random words does.
TEST(Ranks, MasksBelongToSamples) {
  TrainerConfig config = ranks_config();
  config.max_steps = 10;
  config.accumulate = 2;
  const RecordedRun one = train_ranks<DroppingNet>(1, config)[0];
  for (const int world : {2, 3}) {
    SCOPED_TRACE(world);
    const auto many = train_ranks<DroppingNet>(world, config);
    expect_alike(many);
    ASSERT_EQ(many[0].weights.size(), one.weights.size());
    for (std::size_t i = 0; i < one.weights.size(); ++i)
      ASSERT_NEAR(many[0].weights[i], one.weights[i], 1e-5) << i;
    EXPECT_NEAR(many[0].epochs[0].train_loss, one.epochs[0].train_loss, 1e-5);
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
      for (const RecordedRun& run : zero1) EXPECT_EQ(run.weights, ddp[0].weights);
    }
  }
}

// Of two ranks, since only sums of two numbers are the same in any order: matrices lie on other ranks than in
// DDP.
TEST(Ranks, Zero1TrainsByMuonAsDdpDoes) {
  TrainerConfig config = ranks_config();
  config.optimizer_kind = OptimizerKind::muon;
  config.lr = 0.02;
  config.clip_norm = 0;
  config.max_steps = 10;
  const auto ddp = train_ranks(2, with(config, Strategy::ddp));
  const auto zero1 = train_ranks(2, with(config, Strategy::zero1));
  EXPECT_EQ(zero1[0].report.weights_hash, ddp[0].report.weights_hash);
  for (const RecordedRun& run : zero1) EXPECT_EQ(run.weights, ddp[0].weights);
}

/// Logits that no rounding of sums makes others where a batch is divided otherwise.
class PixelNet final : public nn::Module {
 public:
  PixelNet() { register_module("plain", plain), plain.initialize(1); }
  Tensor forward(const Tensor& x) override {
    const Tensor weights = narrow(narrow(plain.out.weight(), 0, 0, 1), 1, 0, 10);
    return narrow(flatten(x), 1, 20, 10) * weights;
  }

  PlainNet plain;
};

// The weights do not move, so that every rank's logits are those of one.
TEST(Ranks, MetricsAreThoseOfOneRankToTheBit) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0); };
  config.val_batch_size = 7;  // 360 samples: the last batch has three
  config.label_smoothing = 0.1;
  const RecordedRun one = train_ranks<PixelNet>(1, config)[0];
  for (const int world : {2, 3, 4}) {
    const auto many = train_ranks<PixelNet>(world, config);
    expect_alike(many);
    const EpochReport &a = many[0].epochs[0], &b = one.epochs[0];
    EXPECT_EQ(a.train_accuracy, b.train_accuracy);
    EXPECT_EQ(a.val_accuracy, b.val_accuracy);
    EXPECT_EQ(a.train_loss, b.train_loss);
    EXPECT_EQ(a.val_loss, b.val_loss);
    EXPECT_EQ(many[0].report.weights_hash, one.report.weights_hash);
  }
}

// Ten times as near to one rank as with norms of each rank's own, which do differ.
TEST(Ranks, SyncBnIsOneRankOnTheSameSamples) {
  TrainerConfig config = ranks_config();
  const RecordedRun one = train_ranks<NormedNet>(1, config)[0];
  TrainerConfig synced = config;
  synced.sync_bn = true;
  EXPECT_EQ(train_ranks<NormedNet>(1, synced)[0].weights, one.weights);
  const auto apart_from_one = [&](const RecordedRun& run) {
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
  const RecordedRun one = train_ranks(1, config)[0];
  const auto many = train_ranks(2, config);
  expect_alike(many);
  EXPECT_EQ(many[0].report.steps.applied, 18);
  EXPECT_NEAR(many[0].epochs[0].val_loss, one.epochs[0].val_loss, 1e-3);
}

// Of the passes of a step only the last sends gradients, and while it runs: those of the last layer are on
// their way before it comes to the first.
TEST(Ranks, GradientsAreSentDuringTheLastPass) {
  class Watched final : public nn::Module {
   public:
    explicit Watched(const dist::FlightRecord& flight) : flight_(flight) {
      register_module("net", net);
      initialize(1);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor y = net.conv(x);
      return net.out(
          flatten(record("look", y.detach() + y.detach(), {y}, [this](const Tensor& dy, Grads& dx) {
            look();
            dx[0] = dy + dy;
          })));
    }
    test::PlainNet net;
    int passes = 0;

   private:
    void look() {
      const int pass = passes++ % 3;
      if (pass == 0) before_ = flight_.size();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
      while (pass == 2 && flight_.size() == before_ && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
      EXPECT_EQ(flight_.size() > before_, pass == 2) << passes;
    }
    const dist::FlightRecord& flight_;
    std::int64_t before_ = 0;
  };
  TrainerConfig config = ranks_config();
  config.accumulate = 3;
  config.max_steps = 4;
  const auto train = digits(Split::train), held_out = digits(Split::test);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Watched net(transport.session().flight());
    Trainer trainer(config, &transport);
    EXPECT_EQ(trainer.fit(net, *train, *held_out).steps.applied, 4);
    EXPECT_EQ(net.passes, 12);
  });
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
  config.max_overflows_at_floor = 100;
  const auto ddp = train_ranks<Spoiled>(2, config);
  expect_alike(ddp);
  EXPECT_EQ(ddp[0].report.steps.skipped_overflow, 2);
  EXPECT_EQ(train_ranks<Spoiled>(2, with(config, Strategy::zero1))[0].report.weights_hash,
            ddp[0].report.weights_hash);
}

// Agreement
// --------------------------------------------------------------------------------------------------

// The step that brings the votes has run forward and backward: weights, statistics and metrics are those of a
// run that never began it.
TEST(Ranks, TheStepThatBringsTheVotesLeavesNoTrace) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    SCOPED_TRACE(name_of(strategy));
    TrainerConfig config = with(ranks_config(), strategy);
    config.schedule = [](double lr, std::int64_t) { return schedules::constant(lr); };
    const auto voted = train_ranks<NormedNet>(2, config, [](Trainer& trainer, const StepInfo& step) {
      if (trainer.rank() == 1 && step.attempted == 7) trainer.stop(StoppedBy::early_stop, "enough");
    });
    config.max_steps = 7;
    const auto limited = train_ranks<NormedNet>(2, config, [](Trainer&, const StepInfo&) {});
    expect_alike(voted);
    EXPECT_EQ(voted[0].report.stopped_by, StoppedBy::early_stop);
    EXPECT_EQ(voted[0].report.steps.attempted(), 7);
    EXPECT_EQ(voted[0].weights, limited[0].weights);
    EXPECT_EQ(voted[0].epochs[0].train_loss, limited[0].epochs[0].train_loss);
    EXPECT_EQ(voted[0].epochs[0].val_loss, limited[0].epochs[0].val_loss) << "by statistics of norms";
  }
}

TEST(Ranks, AStopBetweenEpochsStopsAllRanks) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.epochs = 4;
  config.batch_size = 120;  // 11 steps an epoch
  config.collectives.timeout = std::chrono::seconds(200);
  dist::run_ranks(3, [&](dist::Transport& transport) {
    PlainNet net;
    Trainer trainer(config, &transport);
    trainer.add(test::on_epoch([](Trainer& of, const EpochReport& report) {
      if (of.rank() == 2 && report.epoch == 2) of.stop(StoppedBy::early_stop, "enough");
    }));
    const FitReport report = trainer.fit(net, *digits(Split::train), *digits(Split::test));
    EXPECT_EQ(report.stopped_by, StoppedBy::early_stop);
    EXPECT_EQ(report.epochs, 2);
    EXPECT_EQ(report.steps.applied, 22);
  });
}

TEST(Ranks, VotesHaveOneOutcomeForAll) {
  using dist::StopVote;
  const auto agreed = [](const std::vector<StopVote>& votes) {
    std::vector<StopVote> all(3);
    dist::run_ranks(3, [&](dist::Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      all[rank] = ParallelStrategy::make(&transport, ranks_config())->agree(votes[rank]);
    });
    for (const StopVote& one : all) {
      EXPECT_EQ(one.signal, all[0].signal);
      EXPECT_EQ(one.out_of_time, all[0].out_of_time);
      EXPECT_EQ(one.reason, all[0].reason);
      EXPECT_EQ(one.rank, all[0].rank);
    }
    return all[0];
  };
  EXPECT_FALSE(agreed({{}, {}, {}}).stops());
  for (const int who : {0, 1, 2}) {
    SCOPED_TRACE(who);
    std::vector<StopVote> votes(3);
    votes[static_cast<std::size_t>(who)] = {.signal = 15, .out_of_time = 1, .reason = 0};
    const StopVote all = agreed(votes);
    EXPECT_TRUE(all.stops());
    EXPECT_EQ(all.signal, 15) << "whoever has caught it";
    EXPECT_EQ(all.out_of_time, who == 0 ? 1 : 0) << "rank 0's clock";
    EXPECT_EQ(all.reason, 0);
    EXPECT_EQ(all.rank, who);
  }
  const StopVote both = agreed({{}, {.reason = 2}, {.signal = 2, .reason = 3}});
  EXPECT_EQ(both.reason, 2) << "the lowest rank's";
  EXPECT_EQ(both.rank, 1);
  EXPECT_EQ(both.signal, 2);
}

// Norm, overflow, votes and who has used what travel in one message a step, and that is the only wait.
TEST(Ranks, AStepHasOneAgreement) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    SCOPED_TRACE(name_of(strategy));
    std::vector<std::int64_t> waits, messages;
    std::mutex mutex;
    const auto watch = [&](Trainer& trainer, const StepInfo&) {
      const std::lock_guard lock(mutex);
      if (trainer.rank() == 0) waits.push_back(host_syncs());
    };
    TrainerConfig config = with(ranks_config(), strategy);
    config.max_steps = 20;
    (void)train_ranks(2, config, watch);
    ASSERT_EQ(waits.size(), 20u);
    // Ranks are threads of one process, and wait once each; the hash of the test's own callback is no wait.
    EXPECT_LE(std::abs(waits[18] - waits[2] - 2 * 16), 1);
    config.forbid_sync = true;
    EXPECT_ERROR(Error, train_ranks(2, config), "exchange between ranks", "gradient_sync.cpp");
  }
}

TEST(Ranks, TimeIsTakenFromRank0) {
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

// What ranks agree on at a validation does not take the place of what a step's votes bring.
TEST(Ranks, ValidatingAfterEachStepLosesNoVote) {
  TrainerConfig config = ranks_config();
  config.val_every = {1, false};
  config.limit_val_batches = {1, 1};
  config.max_time_s = 1e-9;
  const auto ended = train_ranks(2, config);
  expect_alike(ended);
  EXPECT_EQ(ended[0].report.stopped_by, StoppedBy::max_time);
  EXPECT_LE(ended[0].report.steps.applied, 2);
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

}  // namespace athanor::ranks_test
