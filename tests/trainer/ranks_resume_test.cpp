// Checkpoints of several ranks, which are threads here: as many as saved go on from them, more, or fewer.
#include <chrono>
#include <thread>

#include "data/synthetic.h"
#include "tests/support/ranks_run.h"

namespace athanor::ranks_resume_test {

using test::expect_alike;
using test::ranks_config;
using test::RecordedRun;
using test::train_ranks;
using test::with;

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

TEST_F(RanksResume, AnyNumberOfRanksCanResume) {
  const auto straight = train_ranks(2, saved_config());
  expect_alike(train_ranks(2, saving(saved_config(), 4)));
  const auto check = [&](std::int64_t step, int world) {
    SCOPED_TRACE(fmt::format("from step {} on {} ranks", step, world));
    const auto resumed = train_ranks(world, from(saved_config(), file(step).string()));
    expect_alike(resumed);
    const RecordedRun &a = resumed[0], &b = straight[0];
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

// Only rank 0 writes, and only it knows why that takes so long.
TEST_F(RanksResume, TheOthersWaitForASlowSave) {
  class Slow final : public Callback {
   public:
    std::string state_name() const override { return "slow"; }
    StateDict state_dict(const Trainer&) const override {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      return {};
    }
  };
  TrainerConfig config = saving(ranks_config(), 2);
  config.max_steps = 3;
  config.collectives.timeout = std::chrono::seconds(3);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    test::PlainNet net;
    Trainer trainer(config, &transport);
    if (transport.rank() == 0) trainer.add(std::make_unique<Slow>());
    EXPECT_EQ(trainer.fit(net, *digits(Split::train), *digits(Split::test)).steps.applied, 3);
  });
}

// ZeRO-1 saves what DDP saves, and goes on with it, on any number of ranks; averages and the best weights
// too.
TEST_F(RanksResume, ShardsResumeOnAnyNumberOfRanks) {
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

// Rank 0 writes from a copy of all shards.
TEST_F(RanksResume, ShardsAreWrittenInTheBackground) {
  const auto straight = train_ranks(2, saved_config());
  TrainerConfig config = with(saving(saved_config(), 4), Strategy::zero1);
  config.async_checkpoints = true;
  const auto saved = train_ranks(2, config);
  expect_alike(saved);
  EXPECT_EQ(saved[0].report.weights_hash, straight[0].report.weights_hash);
  const auto resumed = train_ranks(2, with(from(saved_config(), file(8).string()), Strategy::zero1));
  EXPECT_EQ(resumed[0].report.weights_hash, straight[0].report.weights_hash);
}

// With batch norm, dropout and augmentation: rank 0's statistics, and the seed of the masks of all samples.
TEST_F(RanksResume, RanksHaveOneSeedAndKeepIt) {
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
    std::vector<RecordedRun> runs(2);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      test::ResumeNet net;
      Trainer trainer(options, &transport);
      RecordedRun& mine = runs[static_cast<std::size_t>(transport.rank())];
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
    EXPECT_EQ(straight[0].hashes[0], straight[1].hashes[0]);
    EXPECT_EQ(resumed[1].hashes[0], straight[1].hashes[0]);
    EXPECT_EQ(resumed[0].report.weights_hash, straight[0].report.weights_hash);
    EXPECT_EQ(resumed[0].report.test_loss, straight[0].report.test_loss);
  }
}

}  // namespace athanor::ranks_resume_test
