// A task of several networks, each with an optimizer of its own: what a step updates, saves and divides among
// ranks.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "dist/transports/thread_transport.h"
#include "optim/adam.h"
#include "optim/step.h"
#include "tests/support/errors.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"

namespace athanor::several_optimizers_test {

using test::Autoencoder;
using test::kSmallSpec;
using test::small_config;
using test::StopAfter;
using test::train;
using test::train_small;

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

TEST(SeveralOptimizers, ResumeFromACheckpointBitForBit) {
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

TEST(SeveralOptimizers, RanksEqualOneRank) {
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

/// Two networks of one shape, which a rank may update in an order of its own.
struct Twins : Task {
  nn::Linear a{16, 1}, b{16, 1};
  std::vector<std::string_view> order{"a", "b"};
  Twins() {
    network("a", a);
    network("b", b);
    networks().initialize(7);
  }
  std::vector<OptimizerSpec> optimizers() const override {
    return {optimizer<Adam>("a", {"a"}, {}, schedules::constant(0.01)),
            optimizer<Adam>("b", {"b"}, {}, schedules::constant(0.01))};
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor x = flatten(batch["image"]);
    for (const std::string_view name : order) step.minimize(name, mean(square((name == "a" ? a : b)(x))));
    return {};
  }
};

// The sums would be of gradients that do not belong together.
TEST(SeveralOptimizers, RanksThatUpdateDifferentOnesAreReported) {
  const std::vector<std::string_view> orders[] = {{"b", "a"}, {"b"}, {"a"}};
  for (const auto& order : orders) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      TrainerConfig config = small_config();
      config.threads = 1;
      config.strategy = strategy;
      std::vector<std::string> messages(2);
      dist::run_ranks(2, [&](dist::Transport& transport) {
        Twins task;
        if (transport.rank() == 1) task.order = order;
        messages[static_cast<std::size_t>(transport.rank())] =
            test::message_of([&] { (void)train(task, config, &transport); });
      });
      for (const std::string& message : messages)
        EXPECT_TRUE(test::names(message, {name_of(strategy), "rank 1", "rank 0", "number 1", "number 2"}));
    }
  }
}

TEST(SeveralOptimizers, OneIsUpdatedInAllPassesOfAStepOrInNone) {
  struct EverySecond : Adversarial {
    std::int64_t passes = 0;
    bool first = true;
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]), fake = g(seed_of(x));
      step.minimize("d", loss_of_d(x, fake));
      if ((passes++ % 2 == 0) == first) step.minimize("g", distance(d(fake), 1));
      return {};
    }
  };
  TrainerConfig config = small_config();
  config.accumulate = 2;
  for (const bool first : {true, false}) {
    EverySecond task;
    task.first = first;
    EXPECT_ERROR(ArgumentError, train(task, config), "minimize", "'g'", "--accumulate", "1 of 2", "step 0");
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
  const auto train_with = [](Specs wrong) {
    specs = std::move(wrong);
    return train_small<With>();
  };
  EXPECT_ERROR(ArgumentError, train_with({{"d", {"d"}}, {"d", {"g"}}}), "task", "'d'");
  EXPECT_ERROR(ArgumentError, train_with({{"d", {"d"}}, {"", {"g"}}}), "task", "''");
  EXPECT_ERROR(ArgumentError, train_with({{"d", {"d"}}, {"g", {"d"}}}), "task", "'g'", "'d'", "g");
  EXPECT_ERROR(ArgumentError, train_with({{"d", {"d"}}, {"g", {}}}), "task", "'g'");
  EXPECT_ERROR(ArgumentError, train_with({{"d", {"d"}}}), "task", "'g'");

  struct Misnamed : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]);
      step.minimize("D", distance(d(x), 1));
      return {};
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Misnamed>(), "minimize", "'d'", "'g'", "'D'");
  struct Twice : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]);
      for (int i = 0; i < 2; ++i) step.minimize("d", distance(d(x), 1));
      return {};
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Twice>(), "minimize", "'d'");
  struct Neither : Adversarial {
    Tensor training_step(const Batch&, Step&) override { return {}; }
  };
  EXPECT_ERROR(ArgumentError, train_small<Neither>(), "training_step", "2 optimizers", "minimize()");
  struct Both : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      (void)Adversarial::training_step(batch, step);
      return distance(d(flatten(batch["image"])), 1);
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Both>(), "training_step", "2 optimizers", "minimize()");
  struct OfTheOther : Adversarial {
    Tensor training_step(const Batch& batch, Step& step) override {
      step.minimize("g", distance(d(flatten(batch["image"])), 1));
      return {};
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<OfTheOther>(), "backward");
  struct Undeclared : Adversarial {
    nn::Linear more{1, 1};
    Undeclared() { more.initialize(3); }
    Tensor training_step(const Batch& batch, Step& step) override {
      step.minimize("d", distance(more(d(flatten(batch["image"]))), 1));
      return {};
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Undeclared>(), "minimize", "athanor::nn::Linear",
               "network(NAME, MODULE)");
  struct InOne : Autoencoder {
    Tensor training_step(const Batch& batch, Step& step) override {
      step.minimize("encoder", error(batch));
      return {};
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<InOne>(), "minimize", "training_step");
  struct Validating : Adversarial {
    void validation_step(const Batch& batch, Step& step) override {
      step.minimize("d", distance(d(flatten(batch["image"])), 1));
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Validating>(), "minimize", "'d'");
}

}  // namespace athanor::several_optimizers_test
