// ZeRO-1 in a Trainer: weights travel while the next step computes.
#include <chrono>

#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"

namespace athanor::gather_overlap_test {

using namespace std::chrono_literals;
using test::NormedNet;
using test::ranks_config;
using test::RecordedRun;
using test::train_ranks;
using test::weights_of;

class GatherOverlap : public test::ResumeTest {};

TrainerConfig zero1_config(bool overlap) {
  TrainerConfig config = ranks_config();
  config.strategy = Strategy::zero1;
  config.overlap = overlap;
  config.max_steps = -1;
  config.epochs = 2;
  config.batch_size = 120;  // 11 steps an epoch
  config.ema_decay = 0.9;
  config.early_stop = EarlyStop{"val_loss", 3};
  return config;
}

void expect_same(const std::vector<RecordedRun>& runs, const RecordedRun& expected) {
  for (const RecordedRun& run : runs) {
    EXPECT_EQ(run.weights, expected.weights);
    EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
    EXPECT_EQ(run.report.test_loss, expected.report.test_loss);
    EXPECT_EQ(run.report.steps.applied, expected.report.steps.applied);
    ASSERT_EQ(run.epochs.size(), expected.epochs.size());
    for (std::size_t i = 0; i < run.epochs.size(); ++i) {
      EXPECT_EQ(run.epochs[i].train_loss, expected.epochs[i].train_loss);
      EXPECT_EQ(run.epochs[i].val_loss, expected.epochs[i].val_loss);
      EXPECT_EQ(run.epochs[i].weights_hash, expected.epochs[i].weights_hash);
    }
  }
}

// With averages, validation, checkpoints in the middle of an epoch, and the best weights at the end: whatever
// reads weights waits for them. Without overlap it is DDP to the bit.
TEST_F(GatherOverlap, ChangesNoBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const int world : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", world, name_of(precision)));
      TrainerConfig plain = zero1_config(false), overlapped = zero1_config(true);
      plain.precision = overlapped.precision = precision;
      const RecordedRun expected = train_ranks(world, plain)[0];
      for (const std::uint64_t seed : {0, 1, 2}) {
        const auto delay = seed == 0 ? 0us : 500us;
        std::filesystem::remove_all(folder());
        const auto runs = train_ranks(world, saving(overlapped, 5), {}, {.delay = delay, .seed = seed});
        expect_same(runs, expected);
        EXPECT_EQ(files(), 5u);  // steps 5, 10, 15, 20, 22
      }
      TrainerConfig ddp = plain;
      ddp.strategy = Strategy::ddp;
      expect_same(train_ranks(world, ddp), expected);
      for (const std::int64_t step : {5, 15}) {
        const auto resumed =
            train_ranks(world, from(overlapped, file(step).string()), {}, {.delay = 500us, .seed = 3});
        EXPECT_EQ(resumed[0].weights, expected.weights);
        EXPECT_EQ(resumed[0].report.test_loss, expected.report.test_loss);
      }
    }
  }
}

/// Looks, when the model is called, whether somebody still has the network: weights that are on their way and
/// were not waited for.
class LookingNet : public test::PlainNet {
 public:
  Tensor forward(const Tensor& x) override {
    if (training()) {
      ++steps;
      overlapped += !test::message_of<Error>([&] { network->session().check_free("test"); }).empty();
    }
    return read(x);
  }
  virtual Tensor read(const Tensor& x) { return PlainNet::forward(x); }

  dist::Transport* network = nullptr;
  int steps = 0, overlapped = 0;
};

class OutsideNet final : public LookingNet {
 public:
  Tensor read(const Tensor& x) override { return out.forward(flatten(conv(x))); }
};

struct Looked {
  int steps = 0, overlapped = 0;
  RecordedRun run;
  std::vector<std::vector<double>> seen;  ///< weights, whenever they must be whole
};

/// Reads them as they lie there, wherever that is allowed without a word.
class Reader final : public Callback {
 public:
  Reader(const nn::Module& net, Looked& to) : net_(net), to_(to) {}
  void on_epoch_end(Trainer&, const EpochReport&) override { read(); }
  void on_train_end(Trainer&) override { read(); }
  void on_fit_end(Trainer&, const FitReport&) override { read(); }
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "reader"; }
  StateDict state_dict(const Trainer&) const override {
    read();
    return {};
  }

 private:
  void read() const { to_.seen.push_back(weights_of(net_)); }

  const nn::Module& net_;
  Looked& to_;
};

template <class Net>
std::vector<Looked> look(int world, const TrainerConfig& config,
                         const std::function<test::OnStep(int rank, Net&)>& on_step = {}) {
  static const auto train = digits(Split::train), held_out = digits(Split::test);
  std::vector<Looked> all(static_cast<std::size_t>(world));
  const auto rank = [&](dist::Transport& transport) {
    Looked& mine = all[static_cast<std::size_t>(transport.rank())];
    Net net;
    net.network = &transport;
    Trainer trainer(config, &transport);
    trainer.add(std::make_unique<Reader>(net, mine));
    if (auto reads = on_step ? on_step(transport.rank(), net) : nullptr) trainer.add(test::on_step(reads));
    mine.run.report = trainer.fit(net, *train, *held_out);
    mine.steps = net.steps;
    mine.overlapped = net.overlapped;
  };
  dist::run_ranks(world, rank, {.delay = 2ms, .seed = 1});
  return all;
}

TEST_F(GatherOverlap, PassesBeginBeforeAllWeightsAreThere) {
  for (const bool overlap : {true, false}) {
    TrainerConfig config = zero1_config(overlap);
    config.max_steps = 5;
    for (const Looked& rank : look<LookingNet>(2, config)) {
      EXPECT_EQ(rank.steps, 5);
      EXPECT_EQ(rank.overlapped, overlap ? 4 : 0);  // the first shows that it may be
    }
  }
}

// Epochs that have ended, with averages that were swapped in and out, checkpoints, the end.
TEST_F(GatherOverlap, WeightsAreCompleteOutsideOfSteps) {
  const auto run = [&](bool overlap) {
    std::filesystem::remove_all(folder());
    return look<LookingNet>(3, saving(zero1_config(overlap), 4));
  };
  const auto plain = run(false), overlapped = run(true);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_GT(overlapped[rank].overlapped, 0);
    EXPECT_GE(plain[rank].seen.size(), 10u);
    EXPECT_EQ(overlapped[rank].seen, plain[rank].seen) << rank;
    EXPECT_EQ(plain[rank].seen, plain[0].seen) << rank;
  }
}

// It trains as ever, and is not overlapped.
TEST_F(GatherOverlap, ModelsThatReadWeightsOutsideOfCallsDoNotOverlap) {
  const TrainerConfig config = zero1_config(true);
  const auto inside = look<LookingNet>(2, zero1_config(false)), outside = look<OutsideNet>(2, config);
  for (const Looked& rank : outside) {
    EXPECT_EQ(rank.overlapped, 0);
    EXPECT_EQ(rank.run.report.weights_hash, inside[0].run.report.weights_hash);
  }
}

// A callback of one rank alone keeps all from it, or they would send in another order.
TEST_F(GatherOverlap, CallbacksSeeCompleteWeights) {
  const auto read = [](Strategy strategy) {
    std::vector<std::vector<double>> seen;
    TrainerConfig config = zero1_config(true);
    config.strategy = strategy;
    config.epochs = 1;
    const auto runs = look<LookingNet>(2, config, [&](int rank, LookingNet& net) -> test::OnStep {
      if (rank == 0) return {};
      return [&](Trainer&, const StepInfo&) { seen.push_back(weights_of(net)); };
    });
    EXPECT_EQ(runs[0].overlapped, 0);
    EXPECT_EQ(seen.size(), 11u);
    return seen;
  };
  EXPECT_EQ(read(Strategy::zero1), read(Strategy::ddp));
}

// Norms ask the other ranks in the forward pass, while weights are on their way on another network.
TEST_F(GatherOverlap, BatchNormsOverRanksAreUnaffected) {
  TrainerConfig plain = zero1_config(false), overlapped = zero1_config(true);
  plain.sync_bn = overlapped.sync_bn = true;
  plain.accumulate = overlapped.accumulate = 2;
  expect_same(train_ranks<NormedNet>(3, overlapped, {}, {.delay = 500us, .seed = 7}),
              train_ranks<NormedNet>(3, plain)[0]);
}

// Gradients that overflow for ever: the step is done again, op by op, with the weights of all ranks.
TEST_F(GatherOverlap, AnErrorBetweenTwoStepsIsTheSame) {
  const auto message = [](bool overlap) {
    TrainerConfig config = zero1_config(overlap);
    config.lr = 1e30;
    config.clip_norm = 0;
    config.momentum = 0;
    config.schedule = [](double lr, std::int64_t) { return schedules::constant(static_cast<float>(lr)); };
    config.max_overflows_at_floor = 3;
    return test::message_of<DivergedError>([&] { train_ranks(2, config); });
  };
  EXPECT_TRUE(test::names(message(true), {"trainer", "3"}));
  EXPECT_EQ(message(true), message(false));
}

}  // namespace athanor::gather_overlap_test
