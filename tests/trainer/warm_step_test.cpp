// What a step of training may not do once the first epoch has warmed up: ask for memory, wait for the device.
#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/digits.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/primitive_cache.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/models/resnet.h"
#include "optim/adam.h"
#include "tests/support/count_new.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temp_dir.h"

namespace athanor::warm_step_test {

class WarmStep : public testing::TestWithParam<Precision> {};

TEST_P(WarmStep, AllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const auto train = digits(Split::train), held_out = digits(Split::test);
  const auto model = nn::make_model("digits_cnn", {10, 1, 8}, 0);
  TrainerConfig config;
  config.epochs = 3;
  config.batch_size = 32;
  config.augment = {.pad = 1};
  config.precision = GetParam();
  config.forbid_sync = true;
  config.ema_decay = 0.9;
  const test::TempDir dir;
  config.run_dir = dir / "run";
  config.log_csv = config.log_tensorboard = true;
  config.log_every = 1;
  struct Counts {
    std::int64_t news_before = 0, growths = 0, syncs = 0, primitives = 0, news_after = 0;
  };
  std::vector<Counts> counts;
  counts.reserve(1000);
  Trainer trainer(config);
  trainer.add(test::on_step([&](Trainer&, const StepInfo&) {
    Counts now{.news_before = test::operator_news(), .syncs = host_syncs()};
    now.growths = allocator_of(kCpu).stats().growths;  // looking allocates, too: not the step's doing
    now.primitives = std::ssize(cpu_context().primitives().contents());
    now.news_after = test::operator_news();
    counts.push_back(now);
  }));
  trainer.fit(*model, *train, *held_out);
  const std::size_t per_epoch = counts.size() / 3;
  ASSERT_EQ(per_epoch, 44u);
  for (std::size_t i = per_epoch + 1; i < counts.size(); ++i) {  // the first epoch warms up
    if (i % per_epoch == 0) continue;                            // between epochs there are reports
    SCOPED_TRACE(fmt::format("step {}", i));
    EXPECT_EQ(counts[i].news_before - counts[i - 1].news_after, 0) << "operator new";
    EXPECT_EQ(counts[i].growths - counts[i - 1].growths, 0) << "allocator growth";
    EXPECT_EQ(counts[i].syncs - counts[i - 1].syncs, 0) << "host syncs";
    EXPECT_EQ(counts[i].primitives - counts[i - 1].primitives, 0) << "primitives";
  }
}

// A task of two optimizers, whose steps log and draw random numbers.
TEST(WarmStep, OfTwoOptimizersAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  struct Two : Task {
    nn::Linear generator{8, 64}, discriminator{64, 1};
    Two() {
      network("generator", generator);
      network("discriminator", discriminator);
      networks().initialize(1);
    }
    std::vector<OptimizerSpec> optimizers() const override {
      return {optimizer<Adam>("discriminator", {"discriminator"}, {}, schedules::constant(1e-3)),
              optimizer<Adam>("generator", {"generator"}, {}, schedules::constant(1e-3))};
    }
    Tensor training_step(const Batch& batch, Step& step) override {
      const Tensor x = flatten(batch["image"]), fake = generator(step.randn({batch.size(), 8}));
      step.minimize("discriminator", mean(square(affine(discriminator(x), 1, -1))) +
                                         mean(square(discriminator(fake.detach()))));
      step.minimize("generator", mean(square(affine(discriminator(fake), 1, -1))));
      step.log("a_name_that_is_longer_than_a_short_string", mean(fake), MetricReduce::max);
      return {};
    }
    void validation_step(const Batch&, Step&) override {}
  } task;
  TrainerConfig config;
  config.epochs = 2;
  config.batch_size = 32;
  config.forbid_sync = true;
  std::vector<std::int64_t> news;
  news.reserve(1000);
  Trainer trainer(config);
  trainer.add(test::on_step([&](Trainer&, const StepInfo&) { news.push_back(test::operator_news()); }));
  trainer.fit(task, *digits(Split::train), *digits(Split::test));
  ASSERT_EQ(news.size(), 88u);
  for (std::size_t i = 46; i < news.size(); ++i)
    EXPECT_EQ(news[i], news[i - 1]) << "operator new in step " << i;
}

// Norms that are left to the next layer, and residuals that are normalised.
TEST(WarmStep, OfAResNetAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  nn::ResNet model(nn::ResNetConfig{{1, 1, 0, 0}, 16, false, false}, {10, 1, 8});
  model.initialize(0);
  TrainerConfig config;
  config.epochs = 2;
  config.batch_size = 32;
  std::vector<std::int64_t> news;
  news.reserve(1000);
  Trainer trainer(config);
  trainer.add(test::on_step([&](Trainer&, const StepInfo&) { news.push_back(test::operator_news()); }));
  trainer.fit(model, *digits(Split::train), *digits(Split::test));
  ASSERT_EQ(news.size(), 88u);
  for (std::size_t i = 46; i < news.size(); ++i)
    EXPECT_EQ(news[i], news[i - 1]) << "operator new in step " << i;
}

INSTANTIATE_TEST_SUITE_P(Precisions, WarmStep,
                         testing::Values(Precision::f32, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace athanor::warm_step_test
