// A Trainer on several ranks, which are threads here.
#include "trainer/ranks.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "data/synthetic.h"
#include "nn/batch_norm.h"
#include "optim/adam.h"
#include "support/ranks_run.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using test::NormedNet;
using test::OnRankStep;
using test::PlainNet;
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

/// What each rank's training throws.
template <class Net = PlainNet>
std::vector<std::string> errors_of(int world, const TrainerConfig& config, const OnRankStep& on_step = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(world), "no error");
  try {
    dist::run_ranks(world, [&](dist::Transport& transport) {
      try {
        (void)test::train_rank<Net>(config, &transport, on_step);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(transport.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
    // Of one of them.
  }
  return errors;
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
  const RankRun one = train_ranks<PixelNet>(1, config)[0];
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

// Of the passes of a step only the last sends gradients, and while it runs: those of the last layer are on
// their way before it comes to the first.
TEST(Ranks, GradientsTravelDuringTheLastPass) {
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
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
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
  const auto train = digits(Part::train), held_out = digits(Part::test);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Watched net(transport.flight());
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
  config.patience_at_floor = 100;
  const auto ddp = train_ranks<Spoiled>(2, config);
  expect_alike(ddp);
  EXPECT_EQ(ddp[0].report.steps.skipped_overflow, 2);
  EXPECT_EQ(train_ranks<Spoiled>(2, with(config, Strategy::zero1))[0].report.weights_hash,
            ddp[0].report.weights_hash);
}

/// A validation image that rank 1 cannot read.
class Torn final : public Dataset {
 public:
  explicit Torn(int rank) : torn_(rank == 1) {}
  std::int64_t size() const override { return whole_->size(); }
  const ImageSpec& spec() const override { return whole_->spec(); }
  std::int64_t read(std::int64_t i, std::span<std::uint8_t> pixels) const override {
    if (torn_ && i == 37) throw IoError("photos/37.jpg: cannot be read");
    return whole_->read(i, pixels);
  }

 private:
  std::unique_ptr<InMemoryDataset> whole_ = synthetic({8, 8, 1, 10}, 40, 2);
  bool torn_;
};

// The others are not there to exchange averages for weights with.
TEST(Ranks, AnErrorInAValidationOfAveragesIsSaid) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      TrainerConfig config = with(ranks_config(), strategy);
      config.precision = precision;
      config.max_steps = 3;
      config.ema_decay = 0.9;
      config.workers = 0;
      config.collectives.timeout = std::chrono::seconds(20);
      const std::string error = test::message_of([&] {
        dist::run_ranks(2, [&](dist::Transport& transport) {
          const auto train = synthetic({8, 8, 1, 10}, 100, 1);
          PlainNet net;
          Trainer(config, &transport).fit(net, *train, Torn(transport.rank()));
        });
      });
      test::expect_one_line(error, {"sample 37", "photos/37.jpg: cannot be read"});
    }
  }
}

// Overflows that stay
// ------------------------------------------------------------------------------------------

/// Of a batch of 27, rank 0 has 14 samples and rank 1 has 13.
bool is_rank_1(const nn::Module& module, const Tensor& x) {
  return module.training() && x.shape()[0] == 13;
}

// An infinity between two norms, on one rank: which looks for it while the others are not there.
TEST(Ranks, AnOverflowThatStaysIsNamedBesideJoinedNorms) {
  class Overflowing final : public nn::Module {
   public:
    Overflowing() {
      register_module("net", net);
      register_module("norm", norm);
      register_module("out", out);
      initialize(1);
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = net.norm(net.conv(x));
      if (is_rank_1(*this, x)) y = mul(y, full(y.shape(), std::numeric_limits<float>::infinity()));
      return out(flatten(norm(y)));
    }
    NormedNet net;
    nn::BatchNorm norm{6};
    nn::Linear out{6 * 64, 10};
  };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    for (const bool sync_bn : {true, false}) {
      TrainerConfig config = with(ranks_config(), strategy);
      config.sync_bn = sync_bn;
      config.patience_at_floor = 2;
      config.collectives.timeout = std::chrono::seconds(20);
      const auto errors = errors_of<Overflowing>(2, config);
      for (const std::string& error : errors)
        test::expect_one_line(error,
                              {"those of 2 steps in a row were not", "mul: forward result must be finite"});
      EXPECT_EQ(errors[0], errors[1]);
    }
  }
}

// Its gradient is infinite where rank 1 keeps it, and nowhere else.
TEST(Ranks, WhoseGradientOverflowsIsNamedWhereverItsShardLies) {
  class Rooted final : public nn::Module {
   public:
    Rooted() {
      register_module("net", net);
      net.initialize(1);
      Tensor ones = Tensor::zeros({256});
      for (int i = 0; i < 256; ++i) ones.data<float>()[i] = i == 200 ? 0 : 1;
      root = register_parameter("root", ones);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor y = net(x);
      return is_rank_1(*this, x) ? y + sum(sqrt(root)) : y;
    }
    test::PlainNet net;
    Tensor root;
  };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    SCOPED_TRACE(name_of(strategy));
    TrainerConfig config = with(ranks_config(), strategy);
    config.patience_at_floor = 2;
    const auto errors = errors_of<Rooted>(2, config);
    test::expect_one_line(errors[0], {"the first of them is that of root;", "sqrt: backward"});
    EXPECT_EQ(errors[0], errors[1]);
  }
}

// Looking for an error
// -----------------------------------------------------------------------------------------

TEST(Ranks, UnusedParametersAreNamedOnceForEachRank) {
  class Sparing final : public nn::Module {
   public:
    Sparing() {
      register_module("net", net);
      register_module("sometimes", sometimes);
      register_module("never", never);
      initialize(1);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor y = net(x);
      return is_rank_1(*this, x) ? y + sometimes(flatten(x)) : y;
    }
    test::PlainNet net;
    nn::Linear sometimes{64, 10, {.bias = false}}, never{64, 10, {.bias = false}};
  };
  class Notes final : public Callback {
   public:
    explicit Notes(std::vector<std::string>& notes) : notes_(notes) {}
    void on_note(Trainer&, const std::string& note) override { notes_.push_back(note); }

   private:
    std::vector<std::string>& notes_;
  };
  for (const bool debug : {true, false}) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      TrainerConfig config = with(ranks_config(), strategy);
      config.max_steps = 5;
      config.collectives.compare_calls = debug;
      std::vector<std::vector<std::string>> notes(2);
      dist::run_ranks(2, [&](dist::Transport& transport) {
        Sparing net;
        Trainer trainer(config, &transport);
        trainer.add(std::make_unique<Notes>(notes[static_cast<std::size_t>(transport.rank())]));
        trainer.fit(net, *digits(Part::train), *digits(Part::test));
      });
      const std::vector<std::string> expected{
          "rank 0: step 1 had no gradient for 'sometimes.weight', 'never.weight'",
          "rank 1: step 1 had no gradient for 'never.weight'"};
      for (const auto& told : notes) EXPECT_EQ(told, debug ? expected : std::vector<std::string>());
    }
  }
}

TEST(Ranks, WeightsThatPartAreAnError) {
  TrainerConfig config = ranks_config();
  config.max_steps = 4;
  const auto spoil = [](Trainer& trainer, const StepInfo& step) {
    if (trainer.rank() == 2 && step.attempted == 3) trainer.arena().master(1).data<float>()[0] += 1e-6f;
  };
  for (const std::string& error : errors_of(3, config, spoil))
    test::expect_one_line(error,
                          {"the same weights, but those of rank 2 are no longer rank 0's", "use zero1"});
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

class RanksSettings : public test::ResumeTest {};

// Whichever rank it is, and in whichever direction: what one has and the other has not is missed, too.
TEST_F(RanksSettings, ThatDifferAreNamed) {
  TrainerConfig config = saving(ranks_config(), 0);
  config.max_steps = 3;
  config.collectives.timeout = std::chrono::seconds(20);
  const struct {
    const char* name;
    std::function<void(TrainerConfig&)> change;
    const char *other, *usual;
  } cases[] = {
      {"lr", [](TrainerConfig& c) { c.lr = 0.06; }, "0.06", "0.05"},
      {"epochs", [](TrainerConfig& c) { c.epochs = 2; }, "2", "1"},
      {"strategy", [](TrainerConfig& c) { c.strategy = Strategy::zero1; }, "zero1", "ddp"},
      {"sync_bn", [](TrainerConfig& c) { c.sync_bn = true; }, "true", "false"},
      {"fast_dev_run", [](TrainerConfig& c) { c.fast_dev_run = true; }, "true", "false"},
      {"checkpoint_dir", [](TrainerConfig& c) { c.checkpoint_dir.clear(); }, "not given", "given"},
      {"checkpoint_every", [](TrainerConfig& c) { c.checkpoint_every = 2; }, "2", "0"},
      {"resume", [](TrainerConfig& c) { c.resume = "auto"; }, "given", "not given"},
      {"patience_at_floor", [](TrainerConfig& c) { c.patience_at_floor = 3; }, "3", "16"},
      {"optimizer",
       [](TrainerConfig& c) {
         c.optimizer = [](ParameterArena& arena) { return std::make_unique<AdamW>(arena); };
       },
       "adamw", "sgd"},
  };
  for (const auto& tested : cases) {
    for (const int odd : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}, rank {}", tested.name, odd));
      const std::string message = test::message_of([&] {
        train_ranks<NormedNet>(2, [&](int rank) {
          TrainerConfig changed = config;
          if (rank == odd) tested.change(changed);
          return changed;
        });
      });
      const char *here = odd == 1 ? tested.other : tested.usual,
                 *there = odd == 1 ? tested.usual : tested.other;
      test::expect_one_line(message, {fmt::format("rank 1 differs from rank 0: {} is '{}', not '{}'",
                                                  tested.name, here, there)});
    }
  }
}

TEST_F(RanksSettings, WhatOneHasAndAnotherHasNotIsMissedBothWays) {
  for (const int has : {0, 1}) {
    const std::string message = test::message_of([&] {
      dist::run_ranks(2, [&](dist::Transport& transport) {
        StateDict settings;
        settings.set("lr", std::string("0.1"));
        if (transport.rank() == has) settings.set("model", std::string("lenet5"));
        Ranks(&transport, ranks_config()).check_same(settings);
      });
    });
    test::expect_one_line(message, {"rank 1 differs from rank 0: model is",
                                    has == 0 ? "'not there', not 'lenet5'" : "'lenet5', not 'not there'"});
  }
}

TEST_F(RanksSettings, ThatAreARanksOwnBusinessMayDiffer) {
  const auto runs = train_ranks(2, [&](int rank) {
    TrainerConfig config = saving(ranks_config(), 2);
    config.max_steps = 4;
    config.resume = "auto";
    if (rank == 0) return config;
    config.checkpoint_dir = folder() / "elsewhere";
    config.checkpoint_keep = 7;
    config.resume = folder() / "elsewhere";
    std::filesystem::create_directories(config.resume);
    config.workers = 0;
    config.prefetch = 2;
    config.threads = 2;
    config.max_time_s = 1000;
    config.memory_limit = std::int64_t{8} << 30;
    config.profile = true;
    config.collectives.timeout = std::chrono::seconds(100);
    return config;
  });
  expect_alike(runs);
  EXPECT_EQ(runs[0].report.steps.applied, 4);
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
