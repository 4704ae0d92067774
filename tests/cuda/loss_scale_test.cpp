#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "tests/cuda/device.h"
#include "tests/support/mixed_run.h"

namespace athanor::loss_scale_test {

using LossScaleOnDevice = test::DeviceTest;

TEST_F(LossScaleOnDevice, ASkippedStepLeavesNoTraceInF32) {
  test::check_skipped_leaves_no_trace(test::device(), Precision::f32);
}
TEST_F(LossScaleOnDevice, ASkippedStepLeavesNoTraceInF16) {
  test::check_skipped_leaves_no_trace(test::device(), Precision::f16);
}
TEST_F(LossScaleOnDevice, ASkippedStepLeavesNoTraceInBF16) {
  if (device_info(test::device()).sm() < 80) GTEST_SKIP() << "bf16 needs compute capability 8.0";
  test::check_skipped_leaves_no_trace(test::device(), Precision::bf16);
}

// 50 steps in f16 that overflow by themselves at first, and at two poisoned batches: every decision is the
// CPU's, and the losses stay close to its.
TEST_F(LossScaleOnDevice, DecisionsAreThoseOfTheCpu) {
  test::MixedRunOptions options{.precision = Precision::f16,
                                .scaling = {.initial = 0x1p22f, .growth_interval = 9},
                                .batches = test::count_to(50),
                                .poisoned = {20, 33}};
  const auto cpu = test::mixed_run(options);
  options.device = test::device();
  const auto device = test::mixed_run(options);
  EXPECT_GT(cpu.end.overflow_steps, 3);
  EXPECT_GT(cpu.end.applied_steps, 30);
  ASSERT_EQ(device.steps.size(), cpu.steps.size());
  for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
    EXPECT_EQ(device.steps[i].loss_scale, cpu.steps[i].loss_scale) << "after step " << i;
    EXPECT_EQ(device.steps[i].found_inf, cpu.steps[i].found_inf) << "at step " << i;
    EXPECT_EQ(device.steps[i].learning_rate[0], cpu.steps[i].learning_rate[0]) << "at step " << i;
    if (i == 20 || i == 33) continue;
    EXPECT_NEAR(device.losses[i], cpu.losses[i], 0.02) << "at step " << i;
  }
}

// The guard's statistics are floats made by the same operations: bits.
TEST_F(LossScaleOnDevice, OutliersAreThoseOfTheCpu) {
  const LossScaling scaling{
      .initial = 128, .growth = 4, .backoff = 0.25f, .growth_interval = 3, .floor = 8, .ceiling = 512};
  const OutlierGuard guard{.z = 2, .decay = 0.9f, .warm_up = 5, .patience = 2};
  StepBuffer here, there(test::device());
  for (StepBuffer* step : {&here, &there}) step->write({.loss_scale = scaling.initial});
  const Tensor w = Tensor::from(std::vector<float>{0}, {1}), v = Tensor::from(std::vector<float>{0}, {1});
  require_grad(w);
  require_grad(v);
  ParameterArena cpu({{"w", w}}, {}), device({{"v", v}}, {}, {.device = test::device()});
  GradientMeter cpu_meter(cpu), device_meter(device);
  for (int i = 0; i < 60; ++i) {
    float g = 1 + 0.3f * std::sin(1.7f * static_cast<float>(i));
    if (i % 11 == 9) g = 20;
    if (i % 17 == 13) g = std::numeric_limits<float>::infinity();
    if (i >= 40) g *= 9;
    for (ParameterArena* arena : {&cpu, &device}) {
      arena->zero_grad();
      leaf_of(arena->parameters()[0].tensor)
          .accumulate(Tensor::from(std::vector<float>{g}, {1}).to(arena->device()));
    }
    cpu_meter.measure(here, {.outliers = guard});
    device_meter.measure(there, {.outliers = guard});
    finish_step(here, scaling, guard);
    finish_step(there, scaling, guard);
    const StepState a = here.read(), b = there.read();
    EXPECT_EQ(a.loss_scale, b.loss_scale) << i;
    EXPECT_EQ(a.found_outlier, b.found_outlier) << i;
    EXPECT_EQ(a.norm_mean, b.norm_mean) << i;
    EXPECT_EQ(a.norm_variance, b.norm_variance) << i;
    EXPECT_EQ(a.attempted_steps(), b.attempted_steps()) << i;
    EXPECT_EQ(a.outlier_steps, b.outlier_steps) << i;
  }
  EXPECT_GT(here->outlier_steps, 2);
  EXPECT_GT(here->overflow_steps, 2);
  EXPECT_GT(here->applied_steps, 40);
}

}  // namespace athanor::loss_scale_test
