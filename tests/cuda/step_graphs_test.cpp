#include "trainer/step_graphs.h"

#include <algorithm>

#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/synthetic.h"
#include "nn/models/model.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tensor/pinned.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"

// A run whose steps are captured is the same, bit for bit, as one that queues each kernel.

namespace athanor::step_graphs_test {

using test::RecordedRun;
using test::Recorder;

struct StepGraphsOnDevice : test::DeviceTest {
  static TrainerConfig config(GraphMode graph) {
    TrainerConfig config;
    config.device = test::device();
    config.graph = graph;
    config.batch_size = 4;
    config.epochs = 2;
    config.lr = 0.02;
    config.deterministic = true;
    config.forbid_sync = true;
    config.augment = {.pad = 1, .flip = true};
    return config;
  }
  static RecordedRun run(const TrainerConfig& config, nn::Module& model, const ImageSpec& spec,
                         std::int64_t images) {
    Trainer trainer(config);
    return test::record(trainer, model, *synthetic(spec, images, 1), *synthetic(spec, 4, 2));
  }
  /// Both runs of a configuration; `launches`: passes of the second one that graphs did.
  template <class Train>
  static void expect_same(TrainerConfig config, std::int64_t launches, const Train& train) {
    config.graph = GraphMode::off;
    const RecordedRun plain = train(config);
    config.graph = GraphMode::on;
    const RecordedRun captured = train(config);
    test::expect_same_end(captured, plain);
    ASSERT_EQ(captured.results.size(), plain.results.size());
    for (std::size_t i = 0; i < plain.results.size(); ++i) {
      EXPECT_EQ(captured.results[i].result, plain.results[i].result) << i;
      test::expect_same(captured.results[i].grad_norm, plain.results[i].grad_norm, "gradient norm of result",
                        static_cast<std::int64_t>(i));
      EXPECT_EQ(captured.results[i].learning_rate, plain.results[i].learning_rate) << i;
      EXPECT_EQ(captured.results[i].loss_scale, plain.results[i].loss_scale) << i;
    }
    EXPECT_EQ(plain.report.graph_launches, 0);
    EXPECT_EQ(captured.report.graph_launches, launches);
    EXPECT_EQ(captured.report.host_syncs, plain.report.host_syncs);
  }
  static void expect_same_model(const char* name, const ImageSpec& spec, Precision precision,
                                std::int64_t batch_size = 4) {
    SCOPED_TRACE(testing::Message() << name << " in " << name_of(precision));
    TrainerConfig wanted = config(GraphMode::off);
    wanted.precision = precision;
    wanted.epochs = 1;
    wanted.batch_size = batch_size;
    // The first step and two warm ones, then two captured ones.
    expect_same(wanted, 2, [&](const TrainerConfig& config) {
      const auto model = nn::make_model(name, {spec.classes, spec.channels, spec.height}, 3);
      return run(config, *model, spec, 5 * batch_size);
    });
  }
};

TEST_F(StepGraphsOnDevice, LeNetIsTheSame) {
  for (const Precision precision : {Precision::f32, Precision::f16})
    expect_same_model("lenet5", {16, 16, 1, 5}, precision);
}
TEST_F(StepGraphsOnDevice, ResNet20IsTheSame) {
  for (const Precision precision : {Precision::f32, Precision::f16})
    expect_same_model("resnet20", {8, 8, 3, 5}, precision);
}
TEST_F(StepGraphsOnDevice, CifarNetIsTheSame) {
  if (test::kChecksEveryAccess) GTEST_SKIP() << "it takes minutes where each access is checked";
  for (const Precision precision : {Precision::f32, Precision::f16})
    expect_same_model("cifarnet", {25, 25, 3, 5}, precision, 1);
}

// Matrices of several shapes are updated on streams of their own, beside the rest.
TEST_F(StepGraphsOnDevice, MuonIsTheSame) {
  TrainerConfig wanted = config(GraphMode::off);
  wanted.epochs = 1;
  wanted.optimizer_kind = OptimizerKind::muon;
  expect_same(wanted, 2, [](const TrainerConfig& config) {
    const auto model = nn::make_model("lenet5", {5, 1, 16}, 3);
    return run(config, *model, {16, 16, 1, 5}, 20);
  });
}

// Two passes a step, and a shorter last step of one; batch norm, dropout, an average, a validation each
// epoch.
TEST_F(StepGraphsOnDevice, StepsOfSeveralPassesAndSizesAreTheSame) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    SCOPED_TRACE(name_of(precision));
    TrainerConfig wanted = test::resume_config();
    wanted.device = test::device();
    wanted.forbid_sync = true;
    wanted.precision = precision;
    wanted.epochs = 5;
    wanted.ema_decay = 0.9;
    wanted.clip_norm = 0.5;
    wanted.early_stop.reset();
    // Two steps of each size, and two validations, are warm; before is the first step. The first validation
    // keeps memory, so one more step of the size that has been captured is warm.
    expect_same(wanted, 2 * (5 * 4 - 4) + (5 - 2) + (5 - 2),
                [](const TrainerConfig& config) { return test::train(config); });
  }
}

// A step whose scaled gradients overflow changes nothing but the scale: the graph decides it, too.
TEST_F(StepGraphsOnDevice, SkippedStepsAreTheSame) {
  TrainerConfig wanted = test::resume_config();
  wanted.device = test::device();
  wanted.precision = Precision::f16;
  wanted.accumulate = 1;
  wanted.early_stop.reset();
  wanted.loss_scaling = LossScaling{.initial = 1048576, .growth_interval = 1};
  RecordedRun last;
  expect_same(wanted, 2 * 9 - 4, [&](const TrainerConfig& config) { return last = test::train(config); });
  const auto skipped = [](const StepReport& one) { return one.result == StepResult::skipped_overflow; };
  EXPECT_TRUE(std::any_of(last.results.begin() + 4, last.results.end(), skipped)) << "by a replayed graph";
  EXPECT_FALSE(std::all_of(last.results.begin() + 4, last.results.end(), skipped));
}

TEST_F(StepGraphsOnDevice, ALayerThatIsReleasedIsTrainedByNewGraphs) {
  TrainerConfig wanted = test::resume_config();
  wanted.device = test::device();
  wanted.accumulate = 1;
  wanted.early_stop.reset();
  wanted.freeze = {{"conv", 1}};
  expect_same(wanted, (9 - 3) + (9 - 2), [](const TrainerConfig& config) { return test::train(config); });
}

TEST_F(StepGraphsOnDevice, AllocateNothingOnceCaptured) {
  TrainerConfig wanted = config(GraphMode::on);
  wanted.batch_size = 8;
  std::vector<std::int64_t> growths;
  test::train(wanted, [&](Trainer&, const StepInfo&) {
    growths.push_back(allocator_of(test::device()).stats().growths + pinned_stats().growths);
  });
  ASSERT_EQ(growths.size(), 18u);
  EXPECT_EQ(growths[5], growths[8]);
  EXPECT_EQ(growths[11], growths[17]);
}

/// Two networks, the second of which is updated in every other step.
struct Alternating : Task {
  nn::Linear g{16, 16}, d{16, 1};
  Alternating() {
    network("g", g);
    network("d", d);
    networks().initialize(7);
  }
  std::vector<OptimizerSpec> optimizers() const override {
    return {optimizer<Adam>("d", {"d"}, {.beta1 = 0.5}, schedules::linear(0.01, 20)),
            optimizer<Sgd>("g", {"g"}, {.momentum = 0.5f}, schedules::linear(0.02, 20))};
  }
  static bool updates_g(std::int64_t step) { return step % 2 == 1; }
  std::optional<std::int64_t> captured_as(const BatchPosition& place) const override {
    return place.training && updates_g(place.step) ? 1 : 0;
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor x = flatten(batch["image"]);
    step.minimize("d", mean(square(d(g(x).detach()))));
    if (updates_g(step.number())) step.minimize("g", mean(square(affine(d(g(x)), 1, -1))));
    return {};
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("score", d(g(flatten(batch["image"]))));
  }
};

RecordedRun train_task(const TrainerConfig& config, Task& task) {
  RecordedRun run;
  Trainer trainer(config);
  trainer.add(std::make_unique<Recorder>(run));
  run.report = trainer.fit(task, *synthetic(test::kResumeSpec, 75, 1), *synthetic(test::kResumeSpec, 30, 2));
  run.weights = test::weights_of(task.networks());
  return run;
}

TEST_F(StepGraphsOnDevice, ATaskWithItsOwnOptimizersDeclaresEqualSteps) {
  TrainerConfig wanted = config(GraphMode::off);
  wanted.batch_size = 8;
  // Of each kind two warm steps come first, and before these the first step of all.
  expect_same(wanted, (9 - 3) + (9 - 2), [](const TrainerConfig& config) {
    Alternating task;
    return train_task(config, task);
  });
}

/// Waits for the device in every step, or draws, though it says that its steps may be captured.
struct Unfit : Task {
  nn::Linear net{16, 5};
  bool draws;
  explicit Unfit(bool of_draws) : draws(of_draws) {
    network("", net);
    networks().initialize(7);
  }
  std::optional<std::int64_t> captured_as(const BatchPosition&) const override { return 0; }
  Tensor training_step(const Batch& batch, Step& step) override {
    Tensor x = flatten(batch["image"]);
    if (draws) x = x + step.randn(x.shape());
    const Tensor loss = cross_entropy(net(x), batch.labels);
    if (!draws) (void)loss.item();
    return loss;
  }
};

RecordedRun train_unfit(const TrainerConfig& config, bool draws) {
  Unfit task(draws);
  return train_task(config, task);
}

TEST_F(StepGraphsOnDevice, ACaptureThatFailsIsReportedAndChangesNothing) {
  TrainerConfig wanted = config(GraphMode::off);
  wanted.forbid_sync = false;
  wanted.batch_size = 8;
  Unfit first(false), second(false);
  const RecordedRun plain = train_task(wanted, first);
  wanted.graph = GraphMode::automatic;
  const RecordedRun tried = train_task(wanted, second);
  EXPECT_EQ(tried.weights, plain.weights);
  EXPECT_EQ(tried.report.weights_hash, plain.report.weights_hash);
  EXPECT_EQ(tried.report.graph_launches, 0);
  ASSERT_EQ(tried.notes.size(), plain.notes.size() + 1);
  EXPECT_TRUE(test::names(tried.notes.back(), {"8 samples", "CUDA graph"}));
  wanted.graph = GraphMode::on;
  EXPECT_ERROR(ArgumentError, train_unfit(wanted, false), "--graph on", "step");
}

TEST_F(StepGraphsOnDevice, NumbersOfAStepAreNotDrawnInACapture) {
  EXPECT_ERROR(ArgumentError, train_unfit(config(GraphMode::automatic), true), "randn", "captured_as()");
}

TEST_F(StepGraphsOnDevice, UncapturableStepsAreReportedOrRejected) {
  TrainerConfig wanted = config(GraphMode::automatic);
  const RecordedRun own = test::train(wanted);  // the net is a module of this test's
  EXPECT_EQ(own.report.graph_launches, 0);
  ASSERT_FALSE(own.notes.empty());
  EXPECT_TRUE(test::names(own.notes.back(), {"CUDA graphs", "--graph on"}));
  wanted.graph = GraphMode::on;
  wanted.augment.mixup = 0.2;
  EXPECT_THROW(test::train(wanted), ArgumentError);
  Alternating task;
  EXPECT_EQ(why_not_captured(config(GraphMode::on), 1, task, {}), "");
  EXPECT_TRUE(test::names(why_not_captured(config(GraphMode::on), 2, task, {}), {"ranks"}));
  wanted = config(GraphMode::on);
  wanted.device = kCpu;
  EXPECT_THROW(check(wanted), ArgumentError);
}

// The host knows the rates of the next steps alone: a replay would read past them.
TEST_F(StepGraphsOnDevice, LearningRatesAreNotCaptured) {
  nn::Linear net(3, 2);
  ParameterArena arena(net.parameters(), {}, {.device = test::device()});
  Sgd sgd(arena);
  StepBuffer step(test::device());
  GraphMemory memory(test::device());
  EXPECT_THROW((void)memory.capture([&] { sgd.set_learning_rates(step, schedules::constant(0.1)); }), Error);
  sgd.set_learning_rates(step, schedules::constant(0.1));
  EXPECT_EQ(step.read().learning_rate[0], 0.1f);
}

}  // namespace athanor::step_graphs_test
