// Where the seconds of a run are counted.
#include "trainer/phase_times.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace athanor::phase_times_test {

void wait_ms(int count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

TEST(PhaseTimes, ASecondIsTheInnermostScopes) {
  Times total;
  PhaseTimes times(total);
  const RunClock clock;
  {
    const auto outer = times.scope(&Times::update);
    wait_ms(20);
    {
      const auto inner = times.scope(&Times::forward);
      wait_ms(60);
    }
    wait_ms(20);
  }
  const double passed = clock.seconds();
  wait_ms(30);
  EXPECT_GE(total.update, 0.040);
  EXPECT_GE(total.forward, 0.060);
  EXPECT_LE(total.update + total.forward, passed) << "each counts once, and none outside of scopes";
  EXPECT_EQ(total.step(), total.update + total.forward);
  times.move(0.5, &Times::forward, &Times::communication);
  EXPECT_EQ(total.communication, 0.5);
}

TEST(PhaseTimes, TuningIsAPartOfItsOwnWhereverItHappens) {
  Times total;
  VendorStats vendor;
  PhaseTimes times(total, vendor);
  const RunClock early(vendor), wall, late(vendor);
  const auto tune = [&] {
    wait_ms(50);
    vendor.tuning_s += 0.05;
  };
  {
    const auto outer = times.scope(&Times::update);
    tune();
    {
      const auto inner = times.scope(&Times::forward);
      tune();
      wait_ms(20);
    }
    const auto inner = times.scope(&Times::validation);
    tune();
  }
  tune();  // outside of all scopes
  const double passed = early.seconds();
  EXPECT_NEAR(total.tuning, 0.15, 1e-9);
  EXPECT_GE(total.forward, 0.02);
  EXPECT_GE(total.update, 0);
  EXPECT_GE(total.validation, 0);
  EXPECT_LE(total.step() + total.validation, passed) << "a second of tuning counts nowhere else";
  const double at_least = late.seconds(), of_wall = wall.seconds(), at_most = early.seconds();
  EXPECT_GE(of_wall, at_least + 0.2 - 1e-9) << "four times 0.05 s";
  EXPECT_LE(of_wall, at_most + 0.2 + 1e-9);
}

TEST(PhaseTimes, ValidationIsAWhole) {
  Times total;
  PhaseTimes times(total);
  {
    const auto outer = times.scope(&Times::validation);
    const auto inner = times.scope(&Times::communication);
    wait_ms(5);
  }
  EXPECT_EQ(total.communication, 0);
  EXPECT_GE(total.validation, 0.005);
}

}  // namespace athanor::phase_times_test
