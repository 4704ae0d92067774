// A task of one's own: its loss, its metrics, and all that the Trainer does around it.
#include <cmath>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "dist/transports/thread_transport.h"
#include "optim/adam.h"
#include "optim/step.h"
#include "support/recorded_run.h"
#include "support/small_training.h"
#include "support/temp_dir.h"

namespace athanor {
namespace {

using test::kSmallSpec;
using test::small_config;

/// Images through a bottleneck: no labels, no classes, two networks.
struct Autoencoder : Task {
  nn::Linear encoder{16, 6, {.activation = Activation::relu}}, decoder{6, 16};
  Autoencoder() {
    network("encoder", encoder);
    network("decoder", decoder);
    networks().initialize(7);
  }
  Tensor error(const Batch& batch) {
    const Tensor x = flatten(batch["image"]);
    return mse_loss(decoder(encoder(x)), x);
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("samples", full({}, static_cast<double>(batch.size()), {DType::f32, kCpu}), MetricReduce::sum);
    return loss;
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("loss", loss);
    step.log("score", affine(loss, -10));
  }
};

test::RecordedRun train(Task& task, const TrainerConfig& config, dist::Transport* transport = nullptr,
                        std::unique_ptr<Callback> callback = nullptr) {
  test::RecordedRun run;
  Trainer trainer(config, transport);
  trainer.add(std::make_unique<test::Recorder>(run));
  if (callback) trainer.add(std::move(callback));
  run.report = trainer.fit(task, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  run.weights = test::weights_of(task.networks());
  return run;
}

/// Ends the run after a step; where there are several ranks, one of them asks for it.
struct StopAfter final : Callback {
  explicit StopAfter(std::int64_t after, int by_rank = 0) : attempted(after), rank(by_rank) {}
  void on_step_end(Trainer& trainer, const StepInfo& step) override {
    if (step.attempted == attempted && trainer.rank() == rank) trainer.stop(StoppedBy::max_time, "enough");
  }
  bool reads_weights() const override { return false; }
  std::int64_t attempted;
  int rank;
};

TrainerConfig adam_config() {
  TrainerConfig config = small_config();
  config.epochs = 4;
  config.lr = 0.05;
  return config;
}

TEST(Task, TrainsAndReportsWhatItLogs) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.metrics = folder / "metrics.jsonl";
  Autoencoder task;
  const test::RecordedRun run = train(task, config);
  ASSERT_EQ(run.epochs.size(), 4u);
  const EpochReport &first = run.epochs[0], &last = run.epochs[3];
  EXPECT_LT(last.val_loss, first.val_loss);
  EXPECT_LT(last.train_loss, first.train_loss) << "logged by the Trainer, since the step has not";
  EXPECT_EQ(first.value_of("train_samples"), 160);
  EXPECT_TRUE(std::isnan(first.val_accuracy) && std::isnan(first.value_of("val_samples")));
  EXPECT_NEAR(last.value_of("val_score"), -10 * last.val_loss, 1e-5);
  EXPECT_EQ(run.report.test_loss, last.val_loss);
  ASSERT_EQ(run.report.others.size(), 1u);
  EXPECT_EQ(run.report.others[0].name, "test_score");
  EXPECT_EQ(run.report.others[0].value, last.value_of("val_score"));
  EXPECT_EQ(run.report.stopped_by, StoppedBy::epochs);

  std::ifstream in(folder / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3].at("val_score").get<double>(), last.value_of("val_score"));
  EXPECT_EQ(lines[3].at("train_samples").get<double>(), 160);
  EXPECT_TRUE(lines[3].at("val_accuracy").is_null());
  EXPECT_EQ(lines[4].at("test_score").get<double>(), last.value_of("val_score"));
}

TEST(Task, GoesOnFromACheckpointWithTheSameBits) {
  for (const std::int64_t every : {3, 10}) {  // within an epoch, and at its end
    const test::TempDir folder;
    TrainerConfig config = adam_config();
    Autoencoder whole;
    const test::RecordedRun expected = train(whole, config);
    config.checkpoint_dir = folder / "saved";
    config.checkpoint_every = every;
    Autoencoder before;
    (void)train(before, config, nullptr, std::make_unique<StopAfter>(15));
    config.resume = "auto";
    Autoencoder after;
    const test::RecordedRun run = train(after, config);
    EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
    for (const EpochReport& epoch : run.epochs) {
      const EpochReport& same = expected.epochs.at(static_cast<std::size_t>(epoch.epoch - 1));
      for (const char* name : {"train_loss", "val_loss", "train_samples", "val_score"})
        EXPECT_EQ(epoch.value_of(name), same.value_of(name)) << name << " of epoch " << epoch.epoch;
    }
    // One that has nothing left to do still knows what was measured.
    Autoencoder done;
    const test::RecordedRun again = train(done, config);
    EXPECT_TRUE(again.epochs.empty());
    ASSERT_EQ(again.report.others.size(), 1u);
    EXPECT_EQ(again.report.others[0].value, expected.report.others[0].value);
  }
}

TEST(Task, RanksTrainAndMeasureTogether) {
  TrainerConfig config = adam_config();
  config.threads = 1;
  Autoencoder alone;
  const test::RecordedRun one = train(alone, config);
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    config.strategy = strategy;
    std::vector<test::RecordedRun> runs(3);
    dist::run_ranks(3, [&](dist::Transport& transport) {
      Autoencoder task;
      runs[static_cast<std::size_t>(transport.rank())] = train(task, config, &transport);
    });
    for (const test::RecordedRun& run : runs) {
      ASSERT_EQ(run.epochs.size(), 4u);
      EXPECT_EQ(run.report.weights_hash, runs[0].report.weights_hash);
      EXPECT_EQ(run.epochs[3].value_of("train_samples"), 160);
      for (const char* name : {"train_loss", "val_loss", "val_score"}) {
        EXPECT_NEAR(run.epochs[3].value_of(name), one.epochs[3].value_of(name), 1e-4) << name;
        EXPECT_EQ(run.epochs[3].value_of(name), runs[0].epochs[3].value_of(name)) << name;
      }
    }
  }
}

TEST(Task, EarlyStoppingWatchesWhatItLogs) {
  TrainerConfig config = adam_config();
  config.epochs = 12;
  config.schedule = [](double, std::int64_t) { return schedules::constant(3.0); };  // far too much
  config.momentum = 0;
  config.clip_norm = 1;
  config.early_stop = EarlyStop{"val_score", 2, Goal::maximum};
  Autoencoder task;
  const test::RecordedRun run = train(task, config);
  ASSERT_EQ(run.report.stopped_by, StoppedBy::early_stop);
  const auto best = std::max_element(run.epochs.begin(), run.epochs.end(), [](auto& a, auto& b) {
    return a.value_of("val_score") < b.value_of("val_score");
  });
  EXPECT_EQ(run.report.weights_hash, best->weights_hash);

  config.early_stop = EarlyStop{"val_scare", 2, Goal::maximum};
  Autoencoder other;
  try {
    (void)train(other, config);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(
        error.what(),
        "--early-stop: the metric must be one of train_loss, val_loss, train_samples, val_score, but got "
        "'val_scare'");
  }
  config.early_stop = EarlyStop{"val_score", 2};
  EXPECT_THROW(Trainer{config}, ArgumentError) << "is less of it better, or more?";
}

TEST(Task, AMetricThatIsNoNumberHasDiverged) {
  struct Lost : Autoencoder {
    void validation_step(const Batch& batch, Step& step) override {
      step.log("loss", error(batch));
      step.log("ratio", full({}, std::nan(""), {DType::f32, kCpu}));
    }
  } task;
  const test::RecordedRun run = train(task, adam_config());
  EXPECT_EQ(run.report.stopped_by, StoppedBy::diverged);
}

/// What a run draws, row by row.
struct Drawing : Autoencoder {
  std::vector<std::vector<double>> drawn;  // a step's, or a validation batch's
  bool validates = false;
  Tensor training_step(const Batch& batch, Step& step) override {
    if (!validates) draw(batch, step);
    return error(batch);
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", error(batch));
    if (validates) draw(batch, step);
  }
  void draw(const Batch& batch, Step& step) {
    const std::vector<double> first = step.randn({batch.size(), 2}).to_vector();
    drawn.push_back(step.randn({batch.size()}).to_vector());
    EXPECT_NE(first[0], drawn.back()[0]);
    EXPECT_THROW((void)step.randn({batch.size() + 1, 2}), ArgumentError);
  }
};

TEST(Task, RandomNumbersBelongToSamplesHoweverManyRanksThereAre) {
  TrainerConfig config = adam_config();
  config.threads = 1;
  config.epochs = 2;
  config.accumulate = 2;
  config.val_batch_size = 20;
  for (const bool validates : {false, true}) {
    Drawing alone;
    alone.validates = validates;
    (void)train(alone, config);
    ASSERT_EQ(alone.drawn.size(), validates ? 6u : 20u);
    EXPECT_EQ(alone.drawn[0].size(), validates ? 20u : 16u);
    EXPECT_EQ(alone.drawn[0] == alone.drawn[validates ? 3 : 10], validates) << "the second epoch's";
    EXPECT_NE(alone.drawn[0], alone.drawn[1]);
    std::vector<std::vector<std::vector<double>>> of_ranks(3);
    config.strategy = Strategy::ddp;
    dist::run_ranks(3, [&](dist::Transport& transport) {
      Drawing task;
      task.validates = validates;
      (void)train(task, config, &transport);
      of_ranks[static_cast<std::size_t>(transport.rank())] = task.drawn;
    });
    config.strategy = Strategy::automatic;
    for (std::size_t i = 0; i < alone.drawn.size(); ++i) {
      std::vector<double> together;
      for (const auto& drawn : of_ranks) together.insert(together.end(), drawn[i].begin(), drawn[i].end());
      EXPECT_EQ(together, alone.drawn[i]);
    }
  }
}

// Bad input ------------------------------------------------------------------------------------------------

template <class T> std::string message_of() {
  try {
    T task;
    (void)train(task, adam_config());
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Task, AStepMustReturnTheLossOfItsBatch) {
  struct None : Autoencoder {
    Tensor training_step(const Batch&, Step&) override { return {}; }
  };
  EXPECT_EQ(message_of<None>(),
            "training_step: must have the mean loss of its batch, one f32 that depends on parameters, but "
            "got none");
  struct Rows : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override {
      const Tensor x = flatten(batch["image"]);
      constexpr int kRow[] = {1};
      return mean(decoder(encoder(x)), kRow);
    }
  };
  EXPECT_NE(message_of<Rows>().find("but got f32 [16]"), std::string::npos) << message_of<Rows>();
  struct Half : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return cast(error(batch), DType::f16); }
  };
  EXPECT_NE(message_of<Half>().find("but got f16 []"), std::string::npos) << message_of<Half>();
  struct Constant : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return error(batch).detach(); }
  };
  EXPECT_NE(message_of<Constant>().find("but got one that depends on none"), std::string::npos);
}

TEST(Task, NetworksAreRegisteredOnceUnderNames) {
  struct Twice : Autoencoder {
    Twice() { network("again", encoder); }
  };
  EXPECT_EQ(message_of<Twice>(),
            "task: a network must be registered once, but 'again' is there under another name");
  struct SameName : Autoencoder {
    nn::Linear more{2, 2};
    SameName() { network("encoder", more); }
  };
  EXPECT_NE(message_of<SameName>().find("encoder"), std::string::npos);
  struct Nameless : Autoencoder {
    nn::Linear more{2, 2};
    Nameless() { network("", more); }
  };
  EXPECT_EQ(message_of<Nameless>(), "task: several networks must have names, but one has none");
  struct NoNetwork : Task {
    Tensor training_step(const Batch&, Step&) override { return {}; }
    void validation_step(const Batch&, Step&) override {}
  };
  EXPECT_EQ(message_of<NoNetwork>(),
            "task: must have a network: call network(\"net\", net) in its constructor");
  struct NoField : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return mean(batch["mask"]); }
  };
  EXPECT_EQ(message_of<NoField>(), "batch: fields are 'image', 'label', but 'mask' is asked for");
}

TEST(Task, ANameThatOneRankLogsAloneIsAnErrorOnAll) {
  TrainerConfig config = adam_config();
  config.strategy = Strategy::ddp;
  struct OnOne : Autoencoder {
    bool logs = false;
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor loss = error(batch);
      if (logs) step.log("extra", loss);
      return loss;
    }
  };
  std::vector<std::string> messages(2);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    OnOne task;
    task.logs = transport.rank() == 1;
    try {
      (void)train(task, config, &transport);
    } catch (const ArgumentError& error) {
      messages[static_cast<std::size_t>(transport.rank())] = error.what();
    }
  });
  for (const std::string& message : messages)
    EXPECT_EQ(
        message,
        "log: all ranks must log the same names in the same order, but rank 0 has loss mean and rank 1 extra "
        "mean, loss mean");
}

// Several optimizers ---------------------------------------------------------------------------------------

/// Two networks against each other, in the form of a least-squares GAN. What the generator begins with is a
/// part of the picture, so that it is the same however a batch is divided.
struct Adversarial : Task {
  nn::Linear g{4, 16}, d{16, 1};
  std::string_view spoilt = "";  // the optimizer whose loss overflows
  Adversarial() {
    network("g", g);
    network("d", d);
    networks().initialize(7);
  }
  std::vector<OptimizerSpec> optimizers() const override {
    return {optimizer<Adam>("d", {"d"}, {.beta1 = 0.5}, schedules::constant(0.01)),
            optimizer<Adam>("g", {"g"}, {.beta1 = 0.5}, schedules::constant(0.02))};
  }
  static Tensor seed_of(const Tensor& x) { return contiguous(narrow(x, 1, 0, 4)); }
  static Tensor distance(const Tensor& score, double from) { return mean(square(affine(score, 1, -from))); }
  Tensor loss_of_d(const Tensor& x, const Tensor& fake) {
    return distance(d(x), 1) + distance(d(fake.detach()), 0);
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor x = flatten(batch["image"]), fake = g(seed_of(x));
    const auto minimize = [&](std::string_view name, const Tensor& loss) {
      step.minimize(name, name == spoilt ? affine(loss, INFINITY) : loss);
    };
    minimize("d", loss_of_d(x, fake));
    minimize("g", distance(d(fake), 1));
    return {};
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor x = flatten(batch["image"]);
    step.log("score", d(g(seed_of(x))));
  }
};

struct ByHand {
  std::vector<double> weights;
  double d_loss = 0;
};

/// An epoch of the same without a Trainer: for the generator's update the discriminator is a copy that asks
/// for no gradient.
ByHand adversarial_by_hand(const TrainerConfig& config) {
  const auto train = synthetic(kSmallSpec, 160, 1);
  Adversarial task;
  Loader loader(*train,
                {.batch_size = config.batch_size, .shuffle = true, .drop_last = true, .training = true});
  const Preprocess preprocess(kSmallSpec, measure(*train), DType::f32, kCpu);
  ParameterArena of_d(task.d.parameters(), {}), of_g(task.g.parameters(), {});
  const auto adam = [](ParameterArena& arena, int slot) {
    Adam::Group group;
    group.options.beta1 = 0.5;
    return Adam(arena, std::vector<Adam::Group>{group}, slot);
  };
  Adam d_rule = adam(of_d, 0), g_rule = adam(of_g, 1);
  GradientMeter d_meter(of_d), g_meter(of_g);
  StepBuffer step;
  ByHand result;
  Batch batch;
  for (std::int64_t i = 0; loader.next(batch); ++i) {
    const Tensor x = flatten(preprocess(batch, 0, true)), fake = task.g(Adversarial::seed_of(x));
    const auto update = [&](ParameterArena& arena, GradientMeter& meter, Adam& rule, const Tensor& loss,
                            double rate) {
      arena.zero_grad();
      backward_scaled(loss, step);
      meter.measure(step);
      rule.set_learning_rates(step, schedules::constant(rate));
      rule.step(step);
    };
    const Tensor loss = task.loss_of_d(x, fake);
    result.d_loss += loss.item() * static_cast<double>(batch.size()) / 160;
    update(of_d, d_meter, d_rule, loss, 0.01);
    nn::Linear frozen{16, 1};
    frozen.load_state_dict(task.d.state_dict());
    for (const Parameter& parameter : frozen.parameters()) forget_grad(parameter.tensor);
    update(of_g, g_meter, g_rule, Adversarial::distance(frozen(fake), 1), 0.02);
    finish_step(step);
  }
  result.weights = test::weights_of(task.networks());
  return result;
}

TEST(SeveralOptimizers, UpdateTheirOwnNetworksAtOnce) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  Adversarial task;
  const test::RecordedRun run = train(task, config);
  const ByHand expected = adversarial_by_hand(config);
  EXPECT_EQ(run.weights, expected.weights);
  EXPECT_NEAR(run.epochs.at(0).value_of("train_d_loss"), expected.d_loss, 1e-6);
  EXPECT_GT(run.epochs[0].value_of("train_g_loss"), 0);
  EXPECT_TRUE(std::isnan(run.epochs[0].train_loss)) << "no step has logged one";
  EXPECT_EQ(run.report.steps.applied, 10);
  EXPECT_EQ(run.report.stopped_by, StoppedBy::epochs);
  EXPECT_EQ(run.results.at(3).learning_rate, 0.01f);
}

TEST(SeveralOptimizers, GoOnFromACheckpointWithTheSameBits) {
  TrainerConfig config = small_config();
  config.ema_decay = 0.9;
  Adversarial whole;
  const test::RecordedRun expected = train(whole, config);
  const test::TempDir folder;
  config.checkpoint_dir = folder / "saved";
  config.checkpoint_every = 4;
  Adversarial before;
  (void)train(before, config, nullptr, std::make_unique<StopAfter>(14));
  config.resume = "auto";
  Adversarial after;
  const test::RecordedRun run = train(after, config);
  EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
  EXPECT_EQ(run.weights, expected.weights);
  EXPECT_EQ(run.epochs.back().value_of("train_g_loss"), expected.epochs.back().value_of("train_g_loss"));
}

TEST(SeveralOptimizers, RanksGiveWhatOneDoes) {
  for (const std::int64_t accumulate : {1, 2}) {
    TrainerConfig config = small_config();
    config.threads = 1;
    config.accumulate = accumulate;
    Adversarial alone;
    const test::RecordedRun one = train(alone, config);
    std::vector<std::vector<test::RecordedRun>> all;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      config.strategy = strategy;
      std::vector<test::RecordedRun> runs(3);
      dist::run_ranks(3, [&](dist::Transport& transport) {
        Adversarial task;
        runs[static_cast<std::size_t>(transport.rank())] = train(task, config, &transport);
      });
      for (const test::RecordedRun& run : runs) {
        EXPECT_EQ(run.weights, runs[0].weights);
        ASSERT_EQ(run.weights.size(), one.weights.size());
        for (std::size_t i = 0; i < run.weights.size(); ++i)
          ASSERT_NEAR(run.weights[i], one.weights[i], 1e-4);
        EXPECT_NEAR(run.epochs[2].value_of("train_d_loss"), one.epochs[2].value_of("train_d_loss"), 1e-4);
      }
      all.push_back(std::move(runs));
    }
    EXPECT_EQ(all[0][0].weights, all[1][0].weights) << "ZeRO-1 is DDP";
  }
}

// Votes travel with the first update of the next step, which nobody then makes.
TEST(SeveralOptimizers, RanksStopAfterTheSameStep) {
  TrainerConfig config = small_config();
  config.threads = 1;
  config.strategy = Strategy::zero1;
  std::vector<test::RecordedRun> runs(2);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Adversarial task;
    runs[static_cast<std::size_t>(transport.rank())] =
        train(task, config, &transport, std::make_unique<StopAfter>(7, 1));
  });
  for (const test::RecordedRun& run : runs) {
    EXPECT_EQ(run.report.steps.applied, 7);
    EXPECT_EQ(run.report.stopped_by, StoppedBy::max_time);
    EXPECT_EQ(run.report.weights_hash, runs[0].report.weights_hash);
  }
}

TEST(SeveralOptimizers, AnOverflowSkipsItsUpdateAndThoseBehindIt) {
  TrainerConfig config = small_config();
  config.epochs = 1;
  config.max_steps = 1;
  config.loss_scaling = LossScaling{};
  Adversarial sound;
  const std::vector<double> before = test::weights_of(sound.networks());
  const test::RecordedRun other = train(sound, config);
  for (const std::string_view spoilt : {"d", "g"}) {
    Adversarial task;
    task.spoilt = spoilt;
    const test::RecordedRun run = train(task, config);
    EXPECT_EQ(run.report.steps.skipped_overflow, 1);
    EXPECT_EQ(run.report.steps.applied, 0);
    EXPECT_EQ(run.results.at(0).loss_scale, 32768);
    const std::size_t of_g = 4 * 16 + 16;  // its weights come first, but d is updated first
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool moves = i >= of_g && spoilt == "g";
      ASSERT_EQ(run.weights[i], moves ? other.weights[i] : before[i]) << spoilt << " " << i;
    }
  }
}

TEST(SeveralOptimizers, TheBestWeightsOfAllNetworksAreKept) {
  TrainerConfig config = small_config();
  config.epochs = 12;
  config.early_stop = EarlyStop{"val_score", 2, Goal::minimum};
  Adversarial task;
  const test::RecordedRun run = train(task, config);
  ASSERT_EQ(run.report.stopped_by, StoppedBy::early_stop);
  const auto best = std::min_element(run.epochs.begin(), run.epochs.end(), [](auto& a, auto& b) {
    return a.value_of("val_score") < b.value_of("val_score");
  });
  ASSERT_NE(best, run.epochs.end() - 1);
  EXPECT_EQ(run.report.weights_hash, best->weights_hash);
}

TEST(SeveralOptimizers, EachTrainsNetworksOfItsOwnOnceAStep) {
  using Specs = std::vector<OptimizerSpec>;
  static Specs specs;
  struct With : Adversarial {
    Specs optimizers() const override { return specs; }
  };
  const auto refused = [](Specs wrong) {
    specs = std::move(wrong);
    return message_of<With>();
  };
  EXPECT_EQ(refused({{"d", {"d"}}, {"d", {"g"}}}),
            "task: optimizers must have names of their own, but two are called 'd'");
  EXPECT_EQ(refused({{"d", {"d"}}, {"", {"g"}}}),
            "task: an optimizer's name must be of letters, digits and '_', but is ''");
  EXPECT_EQ(refused({{"d", {"d"}}, {"g", {"d"}}}),
            "task: optimizer 'g' must train networks that no other one does, but 'd' is none of g");
  EXPECT_EQ(refused({{"d", {"d"}}, {"g", {}}}), "task: optimizer 'g' must name the networks that it trains");
  EXPECT_EQ(refused({{"d", {"d"}}}),
            "task: every network must be trained by an optimizer, but 'g' is by none");

  struct Misnamed : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]);
      step.minimize("D", distance(d(x), 1));
      return {};
    }
  };
  EXPECT_EQ(message_of<Misnamed>(), "minimize: must name one of the optimizers 'd', 'g', but got 'D'");
  struct Twice : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]);
      for (int i = 0; i < 2; ++i) step.minimize("d", distance(d(x), 1));
      return {};
    }
  };
  EXPECT_EQ(message_of<Twice>(), "minimize: 'd' must be minimized once a step, but is again");
  struct Neither : Adversarial {
    Tensor training_step(const Batch&, Step&) override { return {}; }
  };
  EXPECT_EQ(message_of<Neither>(),
            "training_step: of 2 optimizers must minimize() the loss of one at least, but has of none");
  struct Both : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      (void)Adversarial::training_step(batch, step);
      return distance(d(flatten(batch["image"])), 1);
    }
  };
  EXPECT_EQ(message_of<Both>(),
            "training_step: of 2 optimizers must return no loss, but minimize() each of its losses");
  struct OfTheOther : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      step.minimize("g", distance(d(flatten(batch["image"])), 1));
      return {};
    }
  };
  EXPECT_EQ(message_of<OfTheOther>(),
            "backward: the root must depend on one of the parameters that are named, but does not");
  struct InOne : Autoencoder {
    Tensor training_step(const Batch& batch, Step& step) override {
      step.minimize("encoder", error(batch));
      return {};
    }
  };
  EXPECT_EQ(message_of<InOne>(),
            "minimize: this task has one optimizer: its training_step must return the loss");
  struct Validating : Adversarial {
    void validation_step(const Batch& batch, Step& step) override {
      step.minimize("d", distance(d(flatten(batch["image"])), 1));
    }
  };
  EXPECT_EQ(message_of<Validating>(),
            "minimize: must be called in a training step, but 'd' is in a validation step");
}

}  // namespace
}  // namespace athanor
