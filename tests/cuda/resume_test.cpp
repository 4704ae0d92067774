#include "tests/cuda/device.h"
#include "tests/support/resumed_run.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor::resume_test {

using namespace test;

class ResumeOnDevice : public ResumeTest {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
  static TrainerConfig config(Precision precision) {
    TrainerConfig config = resume_config();
    config.device = device();
    config.precision = precision;
    config.forbid_sync = true;
    config.ema_decay = 0.9;
    if (precision == Precision::f16) {
      config.loss_scaling = LossScaling{.initial = 1048576, .growth_interval = 3};
    }
    return config;
  }
};

// Saving waits for the device, between two steps, where nothing forbids it.
TEST_F(ResumeOnDevice, EqualsTheRunThatNeverStopped) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    SCOPED_TRACE(name_of(precision));
    std::filesystem::remove_all(folder());
    const RecordedRun straight = train(config(precision));
    expect_same_end(train(saving(config(precision), 4)), straight);
    for (const std::int64_t step : {4, 8, 10}) {
      SCOPED_TRACE(step);
      expect_same_end(train(from(config(precision), file(step).string())), straight);
    }
  }
}

TEST_F(ResumeOnDevice, ACheckpointGoesFromOneDeviceToAnother) {
  train(saving(config(Precision::f32), 4));
  TrainerConfig there = from(config(Precision::f32), file(4).string());
  there.device = kCpu;
  const RecordedRun resumed = train(there);
  EXPECT_EQ(resumed.steps.size(), 6u);
  EXPECT_EQ(resumed.report.steps.applied, 10);
  const RecordedRun back = train(from(config(Precision::f32), file(4).string()));
  EXPECT_LT(max_relative_error(back.weights, resumed.weights), 1e-2);
}

}  // namespace athanor::resume_test
