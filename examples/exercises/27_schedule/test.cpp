#include <cmath>
#include <cstdint>
#include <numbers>

#include <gtest/gtest.h>

#include "schedule.h"

namespace {

const Schedule kSchedule{.peak = 1, .minimum = 0.1, .warm_up = 5, .total = 25};

TEST(Schedule, IsAPureFunction) {
  const double once = rate_at(10, kSchedule);
  EXPECT_EQ(rate_at(10, kSchedule), once)
      << "asked twice for the same step, it gives another rate: it counts its calls";
  (void)rate_at(3, kSchedule);
  EXPECT_EQ(rate_at(10, kSchedule), once) << "a resumed run asks for steps in no order";
}

TEST(Schedule, WarmsUp) {
  EXPECT_NE(rate_at(0, kSchedule), 0) << "the first step has rate 0: it is wasted";
  for (std::int64_t step = 0; step < 5; ++step)
    EXPECT_NEAR(rate_at(step, kSchedule), 0.2 * static_cast<double>(step + 1), 1e-12)
        << "step " << step << " of a warm-up of 5";
  EXPECT_LT(rate_at(5, kSchedule), 1)
      << "the peak is at step 4, the last of the warm-up; step 5 is on its way down already";
}

TEST(Schedule, FallsAlongACosine) {
  EXPECT_NEAR(rate_at(14, kSchedule), 0.55, 1e-12)
      << "step 14 is half way from step 4 to step 24, so that its rate is half way from 1 to 0.1; measure "
         "the way from the peak, not from step 0";
  for (std::int64_t step = 4; step < 25; ++step) {
    const double f = static_cast<double>(step - 4) / 20;
    ASSERT_NEAR(rate_at(step, kSchedule), 0.1 + 0.9 * (1 + std::cos(std::numbers::pi * f)) / 2, 1e-12)
        << "step " << step;
  }
}

TEST(Schedule, EndsAtTheMinimum) {
  EXPECT_NEAR(rate_at(24, kSchedule), 0.1, 1e-12)
      << "the last step, 24 of 25, must have the minimum; a cosine over one step too many does not reach it";
  for (const std::int64_t step : {25, 30, 44, 1000})
    EXPECT_NEAR(rate_at(step, kSchedule), 0.1, 1e-12)
        << "after the end the rate stays: a cosine that continues rises again (step " << step << ")";
}

TEST(Schedule, TakesNoWarmUp) {
  const Schedule none{.peak = 1, .minimum = 0, .warm_up = 0, .total = 11};
  EXPECT_NEAR(rate_at(0, none), 1, 1e-12) << "without warm-up the first step has the peak";
  EXPECT_NEAR(rate_at(5, none), 0.5, 1e-12);
  EXPECT_NEAR(rate_at(10, none), 0, 1e-12);
  EXPECT_EQ(rate_at(0, {.peak = 1, .minimum = 0, .warm_up = 0, .total = 1}), 1) << "one step: no 0/0";
}

}  // namespace
