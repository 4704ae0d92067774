// A task over samples of several fields.
#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/synthetic.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/recorded_run.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"

namespace athanor::field_task_test {

using test::kHeight;
using test::kMoves;
using test::kWidth;
using test::Places;

/// Finds places and classes in pictures, and remembers the sums of what it was given.
struct Finds : Task {
  nn::Linear points{kHeight * kWidth * 3, 4}, classes{3, 256};
  Finds() {
    network("points", points);
    network("classes", classes);
    networks().initialize(7);
  }
  Tensor loss(const Batch& batch, Step& step) {
    const Tensor image = batch["image"], found = points(flatten(batch.view("image", 1)));
    step.log("sum_of_masks", sum(cast(batch["mask"], DType::f32)), MetricReduce::sum);
    step.log("sum_of_points", sum(batch.view("point", 1)), MetricReduce::sum);
    return mse_loss(found, affine(flatten(batch.view("point", 1)), 0.1)) +
           cross_entropy(classes(image), batch["mask"], CrossEntropyOptions{.ignore_index = 255});
  }
  Tensor training_step(const Batch& batch, Step& step) override { return loss(batch, step); }
  void validation_step(const Batch& batch, Step& step) override { step.log("loss", loss(batch, step)); }
};

TrainerConfig finds_config() {
  TrainerConfig config = test::small_config();
  config.threads = 1;
  config.lr = 0.01;
  config.augment = kMoves;
  config.views = 2;
  return config;
}

test::RecordedRun train(Task& task, const TrainerConfig& config, dist::Transport* transport = nullptr,
                        const test::OnStep& on_step = {}) {
  test::RecordedRun run;
  Trainer trainer(config, transport);
  trainer.add(std::make_unique<test::Recorder>(run, on_step));
  run.report = trainer.fit(task, Places(96), Places(20));
  run.weights = test::weights_of(task.networks());
  return run;
}

TEST(FieldTask, RanksSeeTheSameSamples) {
  TrainerConfig config = finds_config();
  Finds alone;
  const test::RecordedRun one = train(alone, config);
  EXPECT_LT(one.epochs.back().val_loss, one.epochs.front().val_loss);
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    config.strategy = strategy;
    std::vector<test::RecordedRun> runs(2);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      Finds task;
      runs[static_cast<std::size_t>(transport.rank())] = train(task, config, &transport);
    });
    EXPECT_EQ(runs[0].weights, runs[1].weights);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      for (const char* name : {"train_sum_of_masks", "train_sum_of_points", "val_sum_of_masks"}) {
        EXPECT_EQ(runs[0].epochs[epoch].value_of(name), one.epochs[epoch].value_of(name)) << name;
      }
    }
    ASSERT_EQ(runs[0].weights.size(), one.weights.size());
    for (std::size_t i = 0; i < one.weights.size(); ++i)
      ASSERT_NEAR(runs[0].weights[i], one.weights[i], 1e-4);
  }
}

TEST(FieldTask, ResumesFromACheckpointBitForBit) {
  const test::TempDir folder;
  TrainerConfig config = finds_config();
  Finds whole;
  const test::RecordedRun expected = train(whole, config);
  config.checkpoint_dir = folder / "saved";
  config.checkpoint_every = 4;
  Finds before;
  (void)train(before, config, nullptr, [](Trainer& trainer, const StepInfo& step) {
    if (step.attempted == 9) trainer.stop(StoppedBy::max_time, "enough");
  });
  config.resume = "auto";
  Finds after;
  EXPECT_EQ(train(after, config).report.weights_hash, expected.report.weights_hash);
  config.views = 3;
  EXPECT_ERROR(ArgumentError, train(after, config), "--resume", "views is 3 and was 2");
}

TEST(FieldTask, SetsOfOtherFieldsDoNotFitEachOther) {
  const auto other = synthetic({kHeight, kWidth, 3, 1}, 10);
  Places train(20, 1);
  Finds task;
  EXPECT_ERROR(ArgumentError, Trainer(finds_config()).fit(task, train, *other), "trainer",
               "image u8 [6, 9, 3]", "label i64 []", "id i64 [2]");
}

}  // namespace athanor::field_task_test
