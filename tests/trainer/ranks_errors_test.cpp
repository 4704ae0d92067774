// What is wrong on one of several ranks, which are threads here: all end, and say it in one line.
#include <chrono>
#include <limits>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "data/synthetic.h"
#include "nn/batch_norm.h"
#include "optim/adam.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"
#include "tests/support/temp_dir.h"
#include "trainer/parallel_strategy.h"

namespace athanor::ranks_errors_test {

using test::expect_alike;
using test::NormedNet;
using test::OnStep;
using test::PlainNet;
using test::ranks_config;
using test::train_ranks;
using test::with;

/// What each rank's training throws.
template <class Net = PlainNet>
std::vector<std::string> errors_of(int world, const TrainerConfig& config, const OnStep& on_step = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
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

/// A validation image that rank 1 cannot read.
class Torn final : public ImageDataset {
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
TEST(Ranks, ReportsAnErrorInAValidationOfAverages) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      TrainerConfig config = with(ranks_config(), strategy);
      config.precision = precision;
      config.max_steps = 3;
      config.ema_decay = 0.9;
      config.workers = 0;
      config.collectives.timeout = std::chrono::seconds(200);
      const std::string error = test::message_of<Error>([&] {
        dist::run_ranks(2, [&](dist::Transport& transport) {
          const auto train = synthetic({8, 8, 1, 10}, 100, 1);
          PlainNet net;
          Trainer(config, &transport).fit(net, *train, Torn(transport.rank()));
        });
      });
      EXPECT_TRUE(test::names(error, {"sample 37", "photos/37.jpg"}));
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
      config.max_overflows_at_floor = 2;
      config.collectives.timeout = std::chrono::seconds(200);
      const auto errors = errors_of<Overflowing>(2, config);
      for (const std::string& error : errors) EXPECT_TRUE(test::names(error, {"trainer", "2", "mul"}));
      EXPECT_EQ(errors[0], errors[1]);
    }
  }
}

TEST(Ranks, ABatchThatIsLargeEnoughForBatchNormsIsNamed) {
  class Normed final : public nn::Module {
   public:
    Normed() {
      register_module("first", first);
      register_module("norm", norm);
      register_module("out", out);
      initialize(1);
    }
    Tensor forward(const Tensor& x) override { return out(norm(first(flatten(x)))); }
    nn::Linear first{64, 6};
    nn::BatchNorm norm{6};
    nn::Linear out{6, 10};
  };
  TrainerConfig config = ranks_config();
  config.batch_size = 2;
  for (const std::string& error : errors_of<Normed>(2, config))
    EXPECT_TRUE(test::names(error, {"batch_norm", "--batch-size 4"}));
  config.batch_size = 4;
  config.max_steps = 2;
  for (const std::string& error : errors_of<Normed>(2, config)) EXPECT_EQ(error, "");
}

// Its gradient is infinite where rank 1 keeps it, and nowhere else.
TEST(Ranks, TheOverflowingParameterIsNamedOnAnyShard) {
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
    config.max_overflows_at_floor = 2;
    const auto errors = errors_of<Rooted>(2, config);
    EXPECT_TRUE(test::names(errors[0], {"trainer", "root", "sqrt"}));
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
  for (const bool debug : {true, false}) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      TrainerConfig config = with(ranks_config(), strategy);
      config.max_steps = 5;
      config.collectives.compare_calls = debug;
      const auto runs = train_ranks<Sparing>(2, config);
      for (const auto& run : runs) {
        ASSERT_EQ(run.notes.size(), debug ? 3u : 1u) << "the first is about a last, smaller batch";
        if (!debug) continue;
        EXPECT_TRUE(test::names(run.notes[1], {"rank 0", "step 1", "'sometimes.weight'", "'never.weight'"}));
        EXPECT_TRUE(test::names(run.notes[2], {"rank 1", "step 1", "'never.weight'"}));
        EXPECT_FALSE(test::holds(run.notes[2], "sometimes.weight")) << run.notes[2];
      }
    }
  }
}

// In the second of three epochs, at whose end it is said: the first has been reported, and no other.
TEST(Ranks, DivergedWeightsAreAnErrorOfTheirEpoch) {
  TrainerConfig config = ranks_config();
  config.max_steps = -1;
  config.epochs = 3;
  config.batch_size = 120;  // 11 steps an epoch
  std::vector<std::int64_t> newest(2);
  const auto spoil = [&](Trainer& trainer, const StepInfo& step) {
    newest[static_cast<std::size_t>(trainer.rank())] = step.attempted;
    if (trainer.rank() == 1 && step.attempted == 12) trainer.arena().master(1).data<float>()[0] += 1e-6f;
  };
  for (const std::string& error : errors_of(2, config, spoil))
    EXPECT_TRUE(test::names(error, {"ddp", "rank 1", "rank 0", "zero1"}));
  EXPECT_EQ(newest, (std::vector<std::int64_t>{22, 22}));
}

// They travel as doubles, of which some are equal that have other bits, and some are not equal to themselves.
TEST(Ranks, AnyTwoHashesAreDistinguished) {
  constexpr std::uint64_t kMinusZero = 0x8000000000000000, kNan = 0x7ff8000000000000;
  const auto errors_with = [](std::uint64_t of_rank_0, std::uint64_t of_rank_2) {
    std::vector<std::string> errors(3, "none");
    dist::run_ranks(3, [&](dist::Transport& transport) {
      const auto ranks = ParallelStrategy::make(&transport, ranks_config());
      errors[static_cast<std::size_t>(transport.rank())] = test::message_of<Error>(
          [&] { ranks->check_weights(transport.rank() == 2 ? of_rank_2 : of_rank_0); });
    });
    return errors;
  };
  for (const auto& [a, b] :
       {std::pair<std::uint64_t, std::uint64_t>{1, 2}, {0, kMinusZero}, {kNan, kNan + 1}}) {
    for (const std::string& error : errors_with(a, b))
      EXPECT_TRUE(test::names(error, {"ddp", "rank 2", "rank 0"}));
  }
  for (const std::uint64_t same : {std::uint64_t{7}, kNan}) {
    for (const std::string& error : errors_with(same, same)) EXPECT_EQ(error, "");
  }
}

// Settings
// ----------------------------------------

class RanksSettings : public test::ResumeTest {};

// Whichever rank it is, and in whichever direction: what one has and the other has not is missed, too.
TEST_F(RanksSettings, ThatDifferAreNamed) {
  TrainerConfig config = saving(ranks_config(), 0);
  config.max_steps = 3;
  config.collectives.timeout = std::chrono::seconds(200);
  const struct {
    const char* name;
    std::function<void(TrainerConfig&)> change;
    const char *other, *usual;
  } cases[] = {
      {"lr", [](TrainerConfig& c) { c.lr = 0.06; }, "0.06", "0.05"},
      {"epochs", [](TrainerConfig& c) { c.epochs = 2; }, "2", "1"},
      {"strategy", [](TrainerConfig& c) { c.strategy = Strategy::zero1; }, "zero1", "ddp"},
      {"sync_bn", [](TrainerConfig& c) { c.sync_bn = true; }, "true", "false"},
      {"fast_dev_run", [](TrainerConfig& c) { c.fast_dev_run = 1; }, "1", "0"},
      {"checkpoint_dir", [](TrainerConfig& c) { c.checkpoint_dir.clear(); }, "not given", "given"},
      {"checkpoint_every", [](TrainerConfig& c) { c.checkpoint_every = 2; }, "2", "0"},
      {"resume", [](TrainerConfig& c) { c.resume = "auto"; }, "given", "not given"},
      {"max_overflows_at_floor", [](TrainerConfig& c) { c.max_overflows_at_floor = 3; }, "3", "16"},
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
      EXPECT_TRUE(test::names(
          message, {"rank 1", "rank 0", tested.name, fmt::format("'{}'", here), fmt::format("'{}'", there)}));
    }
  }
}

TEST_F(RanksSettings, ASettingMissingOnOneRankIsReported) {
  for (const int has : {0, 1}) {
    const std::string message = test::message_of([&] {
      dist::run_ranks(2, [&](dist::Transport& transport) {
        StateDict settings;
        settings.set("lr", std::string("0.1"));
        if (transport.rank() == has) settings.set("model", std::string("lenet5"));
        ParallelStrategy::make(&transport, ranks_config())->check_same(settings);
      });
    });
    EXPECT_TRUE(test::names(message, {"rank 1", "rank 0", "model", "'lenet5'"}));
  }
}

TEST_F(RanksSettings, LocalOnesMayDiffer) {
  const auto runs = train_ranks(2, [&](int rank) {
    TrainerConfig config = saving(ranks_config(), 2);
    config.max_steps = 4;
    config.resume = "auto";
    if (rank == 0) return config;
    config.checkpoint_dir = folder() / "elsewhere";
    config.checkpoint_keep = 7;
    config.resume = folder() / "of_rank_1.safetensors";
    test::write_file(config.resume, "");
    config.workers = 0;
    config.prefetch = 2;
    config.threads = 2;
    config.max_time_s = 1000;
    config.memory_limit = std::int64_t{8} << 30;
    config.profile = Profile::simple;
    config.collectives.timeout = std::chrono::seconds(100);
    return config;
  });
  expect_alike(runs);
  EXPECT_EQ(runs[0].report.steps.applied, 4);
}

TEST(Ranks, RejectsImpossibleSettings) {
  TrainerConfig config = ranks_config();
  config.batch_size = 2;
  EXPECT_ERROR(ArgumentError, train_ranks(3, config), "--batch-size", "3", "2");
  config = ranks_config();
  config.devices = 2;
  EXPECT_ERROR(ArgumentError, train_ranks(1, config), "--devices 2", "run_on_ranks()");
  config = with(ranks_config(), Strategy::single);
  EXPECT_ERROR(ArgumentError, train_ranks(2, config), "--strategy single", "2", "ddp", "zero1");
}

}  // namespace athanor::ranks_errors_test
