// A task of one's own: its loss, its metrics, and all that the Trainer does around it.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "autograd/checkpoint.h"
#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "dist/transports/thread_transport.h"
#include "nn/batch_norm.h"
#include "optim/sgd.h"
#include "tests/support/errors.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"

namespace athanor::task_test {

using test::adam_config;
using test::Autoencoder;
using test::StopAfter;
using test::train;
using test::train_small;

/// Logs every kind of metric, in training and in validation.
struct Measuring : Autoencoder {
  void log_all(const Batch& batch, Step& step) {
    const Tensor x = flatten(batch["image"]), logits = narrow(decoder(encoder(x)), 1, 0, 5);
    step.log_top_k("top2", logits, batch.labels, 2);
    step.log_confusion("classes", logits, batch.labels, 5, true);
    step.log_absolute_error("mae", affine(x, 0.3), x);  // has the same bits in every batch
    step.log("error", square(affine(x, -0.7)), MetricReduce::exact);
    step.log("mean", x, MetricReduce::exact);
    step.log("squares", square(x), MetricReduce::exact);
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    log_all(batch, step);
    return error(batch);
  }
  void validation_step(const Batch& batch, Step& step) override {
    Autoencoder::validation_step(batch, step);
    log_all(batch, step);
  }
  std::vector<ValueOfSums> values_of_sums() const override {
    return {{"r2", {"error", "mean", "squares"}, [](std::span<const double> mean) {
               return 1 - mean[0] / (mean[2] - mean[1] * mean[1]);
             }}};
  }
};

void expect_same_values(const std::vector<NamedValue>& got, const std::vector<NamedValue>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_EQ(got[i].value, want[i].value) << got[i].name;
  }
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

TEST(Task, ValidationKnowsTheEpochItFollows) {
  struct Numbered : Autoencoder {
    void validation_step(const Batch& batch, Step& step) override {
      Autoencoder::validation_step(batch, step);
      step.log("epoch", Tensor::from(std::vector<float>{static_cast<float>(step.epoch())}, {}));
    }
  };
  Numbered task;
  TrainerConfig config = adam_config();
  config.sanity_val = 1;
  const test::RecordedRun run = train(task, config);
  ASSERT_EQ(run.epochs.size(), 4u);
  for (std::size_t epoch = 0; epoch < 4; ++epoch) EXPECT_EQ(run.epochs[epoch].value_of("val_epoch"), epoch);
  EXPECT_EQ(run.report.others.back().value, 3);
}

TEST(Task, TrainsWithoutValidation) {
  struct Unvalidated : Autoencoder {
    void validation_step(const Batch&, Step&) override { FAIL() << "there is nothing to validate on"; }
  };
  TrainerConfig config = adam_config();
  Autoencoder validated;
  const test::RecordedRun expected = train(validated, config);
  Unvalidated task;
  test::RecordedRun run;
  Trainer trainer(config);
  trainer.add(std::make_unique<test::Recorder>(run));
  run.report = trainer.fit(task, *synthetic(test::kSmallSpec, 160, 1));
  EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
  EXPECT_TRUE(std::isnan(run.report.test_loss) && run.report.others.empty());
  EXPECT_EQ(run.report.stopped_by, StoppedBy::epochs);
  ASSERT_EQ(run.epochs.size(), 4u);
  EXPECT_TRUE(std::isnan(run.epochs[3].val_loss));
  EXPECT_EQ(run.epochs[3].train_loss, expected.epochs[3].train_loss);

  config.early_stop = EarlyStop{"val_loss", 2};
  Trainer watched(config);
  EXPECT_ERROR(ArgumentError, watched.fit(task, *synthetic(test::kSmallSpec, 160, 1)), "--early-stop",
               "train_loss", "train_samples", "'val_loss'");
}

TEST(Task, RanksEndWithOneModelAlsoWithoutValidation) {
  struct Normed : Task {
    nn::BatchNorm norm{16};
    Normed() { network("norm", norm), norm.initialize(1); }
    Tensor training_step(const Batch& batch, Step&) override {
      return mean(square(norm(flatten(batch["image"]))));
    }
  };
  for (const double ema_decay : {0.0, 0.9}) {
    TrainerConfig config = adam_config();
    config.threads = 1;
    config.strategy = Strategy::ddp;
    config.ema_decay = ema_decay;
    std::vector<std::vector<double>> means(2);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      Normed task;
      Trainer(config, &transport).fit(task, *synthetic(test::kSmallSpec, 160, 1));
      for (const NamedTensor& buffer : task.norm.buffers()) {
        const std::vector<double> values = buffer.tensor.to_vector();
        auto& to = means[static_cast<std::size_t>(transport.rank())];
        to.insert(to.end(), values.begin(), values.end());
      }
    });
    ASSERT_EQ(means[0].size(), 32u);
    EXPECT_EQ(means[0], means[1]) << ema_decay;
  }
}

TEST(Task, ResumesFromACheckpointBitForBit) {
  for (const std::int64_t every : {3, 10}) {  // within an epoch, and at its end
    const test::TempDir folder;
    TrainerConfig config = adam_config();
    Measuring whole;
    const test::RecordedRun expected = train(whole, config);
    ASSERT_GT(expected.epochs[0].others.size(), 50u);
    config.checkpoint_dir = folder / "saved";
    config.checkpoint_every = every;
    Measuring before;
    (void)train(before, config, nullptr, std::make_unique<StopAfter>(15));
    config.resume = "auto";
    Measuring after;
    const test::RecordedRun run = train(after, config);
    EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
    for (const EpochReport& epoch : run.epochs) {
      const EpochReport& same = expected.epochs.at(static_cast<std::size_t>(epoch.epoch - 1));
      EXPECT_EQ(epoch.train_loss, same.train_loss);
      EXPECT_EQ(epoch.val_loss, same.val_loss);
      expect_same_values(epoch.others, same.others);
    }
    // One that has nothing left to do still knows what was measured.
    Measuring done;
    const test::RecordedRun again = train(done, config);
    EXPECT_TRUE(again.epochs.empty());
    expect_same_values(again.report.others, expected.report.others);
  }
}

TEST(Task, ExactMetricsOfRanksEqualThoseOfOne) {
  TrainerConfig config = test::small_config();
  config.threads = 1;
  config.lr = 1e-30;  // all ranks have the same weights, to the last bit
  Measuring alone;
  std::vector<NamedValue> one = train(alone, config).epochs[2].others;
  std::erase_if(one, [](const NamedValue& value) { return value.name == "val_score"; });  // a mean of means
  for (const int ranks : {2, 3}) {
    dist::run_ranks(ranks, [&](dist::Transport& transport) {
      Measuring task;
      TrainerConfig shared = config;
      shared.strategy = Strategy::ddp;
      const test::RecordedRun run = train(task, shared, &transport);
      for (const NamedValue& value : one)
        EXPECT_EQ(run.epochs[2].value_of(value.name), value.value) << value.name << " on " << ranks;
    });
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
  EXPECT_ERROR(ArgumentError, train(other, config), "--early-stop", "train_loss", "val_loss", "train_samples",
               "val_score", "'val_scare'", "'val_score'");
  config.early_stop = EarlyStop{"val_score", 2};
  EXPECT_THROW(Trainer{config}, ArgumentError) << "is less of it better, or more?";

  config.lr = 1e-30;
  config.schedule = {};
  for (const char* name : {"val_classes_iou", "val_r2"}) {
    config.early_stop = EarlyStop{name, 1, Goal::minimum};
    Measuring measuring;
    EXPECT_EQ(train(measuring, config).report.stopped_by, StoppedBy::early_stop) << name;
  }
}

TEST(Task, ANaNMetricHasDiverged) {
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

TEST(Task, AStepMustReturnTheLossOfItsBatch) {
  struct None : Autoencoder {
    Tensor training_step(const Batch&, Step&) override { return {}; }
  };
  EXPECT_ERROR(ArgumentError, train_small<None>(), "training_step", "f32", "none");
  struct Rows : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override {
      const Tensor x = flatten(batch["image"]);
      constexpr int kRow[] = {1};
      return mean(decoder(encoder(x)), kRow);
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Rows>(), "training_step", "f32 [16]");
  struct Half : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return cast(error(batch), DType::f16); }
  };
  EXPECT_ERROR(ArgumentError, train_small<Half>(), "training_step", "f16 []");
  struct Constant : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return error(batch).detach(); }
  };
  EXPECT_ERROR(ArgumentError, train_small<Constant>(), "training_step", "f32");
}

TEST(Task, ALossDependsOnlyOnWhatAnOptimizerHas) {
  struct Undeclared : Autoencoder {
    nn::Linear more{16, 16};
    Undeclared() { more.initialize(3); }
    Tensor training_step(const Batch& batch, Step&) override {
      const Tensor x = flatten(batch["image"]);
      return mse_loss(more(decoder(encoder(x))), x);
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Undeclared>(), "training_step", "athanor::nn::Linear",
               "network(NAME, MODULE)", "register_module(NAME, MODULE)", "freeze()");
  struct Checkpointed : Undeclared {
    Tensor training_step(const Batch& batch, Step&) override {
      const Tensor x = flatten(batch["image"]);
      return mse_loss(checkpoint([this](const Tensor& y) { return more(y); }, decoder(encoder(x))), x);
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Checkpointed>(), "training_step", "athanor::nn::Linear");
  struct Unfrozen : Undeclared {
    Unfrozen() { more.freeze(), more.unfreeze(); }
  };
  EXPECT_ERROR(ArgumentError, train_small<Unfrozen>(), "training_step", "athanor::nn::Linear");
  struct Late : Undeclared {
    Tensor training_step(const Batch& batch, Step& step) override {
      return step.epoch() > 0 ? Undeclared::training_step(batch, step) : error(batch);
    }
  };
  EXPECT_ERROR(ArgumentError, train_small<Late>(), "training_step", "athanor::nn::Linear");
  struct Loose : Autoencoder {
    Tensor scale = full({}, 1, {DType::f32, kCpu});
    Loose() { require_grad(scale); }
    Tensor training_step(const Batch& batch, Step&) override { return error(batch) * scale; }
  };
  EXPECT_ERROR(ArgumentError, train_small<Loose>(), "training_step", "require_grad()");

  // As they should be: a network that is frozen, and an input whose gradient the step wants.
  struct Frozen : Undeclared {
    Frozen() { more.freeze(); }
  };
  EXPECT_EQ(train_small<Frozen>().epochs.size(), 4u);
  struct OfTheInput : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override {
      const Tensor x = flatten(batch["image"]).detach();
      require_grad(x);
      return mse_loss(decoder(encoder(x)), x.detach());
    }
  };
  EXPECT_EQ(train_small<OfTheInput>().epochs.size(), 4u);
}

TEST(Task, AnOptimizerHasEveryParameterAndSaysThatItHasWritten) {
  Autoencoder task;
  TrainerConfig config = adam_config();
  config.optimizer = [](ParameterArena& arena) {
    Sgd::Group group;
    group.parameters = selectors::under("encoder.");
    return std::make_unique<Sgd>(arena, std::vector<Sgd::Group>{group}, 0);
  };
  EXPECT_ERROR(ArgumentError, train(task, config), "optimizer", "'decoder.weight'", "'sgd'", "freeze()");
  task.decoder.freeze();
  EXPECT_EQ(train(task, config).epochs.size(), 4u);

  struct Silent final : Optimizer {
    explicit Silent(ParameterArena& arena)
        : Optimizer("silent", arena, {ParamGroup{}}, 0, std::array{Decay::matrices}) {}
    void step(StepBuffer&) override {}
  };
  config.optimizer = [](ParameterArena& arena) { return std::make_unique<Silent>(arena); };
  EXPECT_ERROR(ArgumentError, train(task, config), "optimizer", "stepped()", "'silent'");
}

TEST(Task, NetworksAreRegisteredOnceUnderNames) {
  struct Twice : Autoencoder {
    Twice() { network("again", encoder); }
  };
  EXPECT_ERROR(ArgumentError, train_small<Twice>(), "task", "'again'");
  struct SameName : Autoencoder {
    nn::Linear more{2, 2};
    SameName() { network("encoder", more); }
  };
  EXPECT_ERROR(ArgumentError, train_small<SameName>(), "encoder");
  struct Nameless : Autoencoder {
    nn::Linear more{2, 2};
    Nameless() { network("", more); }
  };
  EXPECT_ERROR(ArgumentError, train_small<Nameless>(), "task");
  struct NoNetwork : Task {
    Tensor training_step(const Batch&, Step&) override { return {}; }
    void validation_step(const Batch&, Step&) override {}
  };
  EXPECT_ERROR(ArgumentError, train_small<NoNetwork>(), "task", "network(\"net\", net)");
  struct NoField : Autoencoder {
    Tensor training_step(const Batch& batch, Step&) override { return mean(batch["mask"]); }
  };
  EXPECT_ERROR(ArgumentError, train_small<NoField>(), "batch", "'image'", "'label'", "'mask'");
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
    messages[static_cast<std::size_t>(transport.rank())] =
        test::message_of([&] { (void)train(task, config, &transport); });
  });
  for (const std::string& message : messages)
    EXPECT_TRUE(test::names(message, {"log", "rank 0", "loss mean", "rank 1", "extra mean, loss mean"}));
}

}  // namespace athanor::task_test
