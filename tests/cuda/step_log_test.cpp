#include "trainer/loggers/step_log.h"

#include "autograd/creation.h"
#include "optim/step.h"
#include "tensor/base/counters.h"
#include "tests/cuda/device.h"
#include "trainer/loggers/reports.h"

namespace athanor::step_log_test {

using StepLogOnDevice = test::DeviceTest;

// More steps than the host may run ahead, of which it waits for none; a name comes up late.
TEST_F(StepLogOnDevice, ComesToTheHostWithItsStep) {
  MetricSums sums(test::device());
  StepBuffer step(test::device());
  StepLogs logs(3, test::device());
  logs.begin({.attempted = 0, .epoch = 1, .samples = 0, .times = {}});
  std::vector<std::pair<std::int64_t, double>> losses, lates;
  step.on_known([&](const StepState& state) {
    const StepLog* const log = logs.arrived(sums, report_of(state));
    if (!log) return;
    losses.emplace_back(log->report.attempted, log->values[0].value);
    for (const NamedValue& one : log->values)
      if (one.name == "train_late") lates.emplace_back(log->report.attempted, one.value);
    EXPECT_EQ(log->images_per_s, 24 / (3 * 0.5));
    EXPECT_EQ(log->data_wait_s, 0.25);
  });
  constexpr std::int64_t kSteps = 60;
  std::vector<Tensor> values;
  for (std::int64_t i = 1; i <= kSteps; ++i)
    values.push_back(full({}, static_cast<double>(i), {DType::f32, test::device()}));
  {
    const ForbidSync forbid;
    for (std::int64_t i = 1; i <= kSteps; ++i) {
      sums.snapshot();
      sums.log("loss", values[static_cast<std::size_t>(i - 1)], 8, MetricReduce::mean);
      if (i >= 20) sums.log("late", values[static_cast<std::size_t>(i - 1)], 8, MetricReduce::max);
      const auto s = static_cast<double>(i);
      logs.send(
          sums,
          {.attempted = i, .epoch = 1, .samples = 8 * i, .times = {.data = 0.25 * s, .forward = 0.25 * s}});
      sums.restore_if_skipped(step);
      finish_step(step);
    }
  }
  (void)step.read();
  (void)step.known();
  ASSERT_EQ(losses.size(), 20u);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto number = static_cast<std::int64_t>(3 * (i + 1));
    EXPECT_EQ(losses[i].first, number);
    EXPECT_EQ(losses[i].second, static_cast<double>(number));
  }
  ASSERT_FALSE(lates.empty());
  EXPECT_EQ(lates.back(), (std::pair<std::int64_t, double>{60, 60}));
}

}  // namespace athanor::step_log_test
