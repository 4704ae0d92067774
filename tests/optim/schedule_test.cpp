#include "optim/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tensor/base/error.h"

namespace athanor::schedules::schedule_test {

TEST(Schedule, StepsAndMilestonesByHand) {
  const Schedule stairs = step_decay(1, 10, 0.5);
  EXPECT_FLOAT_EQ(stairs(0), 1);
  EXPECT_FLOAT_EQ(stairs(9), 1);
  EXPECT_FLOAT_EQ(stairs(10), 0.5f);
  EXPECT_FLOAT_EQ(stairs(35), 0.125f);
  const Schedule drops = multi_step(0.1, {3, 5}, 0.1);
  EXPECT_FLOAT_EQ(drops(2), 0.1f);
  EXPECT_FLOAT_EQ(drops(3), 0.01f);
  EXPECT_FLOAT_EQ(drops(5), 0.001f);
  EXPECT_FLOAT_EQ(constant(0.3)(1'000'000), 0.3f);
}

TEST(Schedule, CosineGoesFromRateThroughHalfToMinimum) {
  const Schedule curve = cosine(1, 100, 0.2);
  EXPECT_FLOAT_EQ(curve(0), 1);
  EXPECT_FLOAT_EQ(curve(50), 0.6f);
  EXPECT_FLOAT_EQ(curve(25), static_cast<float>(0.2 + 0.4 * (1 + std::sqrt(0.5))));
  EXPECT_FLOAT_EQ(curve(100), 0.2f);
  EXPECT_FLOAT_EQ(curve(1000), 0.2f);
}

TEST(Schedule, LinearAndPolynomialReachTheirEnd) {
  EXPECT_FLOAT_EQ(linear(0.67, 200)(50), 0.5025f);
  EXPECT_EQ(linear(0.67, 200)(200), 0);
  EXPECT_EQ(linear(0.67, 200)(201), 0);
  EXPECT_FLOAT_EQ(polynomial(2, 10, 2)(5), 0.5f);
  EXPECT_FLOAT_EQ(linear(1, 10, 3)(5), 2);
}

TEST(Schedule, WarmUpLeadsIntoWhatFollows) {
  const Schedule curve = warm_up(4, cosine(1, 10), 0.2);
  EXPECT_FLOAT_EQ(curve(0), 0.2f);
  EXPECT_FLOAT_EQ(curve(2), 0.6f);
  EXPECT_FLOAT_EQ(curve(4), 1);
  EXPECT_FLOAT_EQ(curve(9), cosine(1, 10)(5));
  EXPECT_FLOAT_EQ(warm_up(0, constant(2))(0), 2);
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=0.1, total_steps=10, pct_start=0.3), printed by torch 2.15.
TEST(Schedule, OneCycleEqualsPyTorch) {
  const float expected[] = {0.004f,        0.052f,        0.1f,          0.0950484632f, 0.0811745654f,
                            0.0611262022f, 0.0388741978f, 0.0188258346f, 0.0049519368f, 4e-07f};
  const Schedule curve = one_cycle({.max_rate = 0.1, .total = 10});
  for (int step = 0; step < 10; ++step) EXPECT_NEAR(curve(step), expected[step], 1e-8) << step;
  const float straight[] = {0.1f, 0.46f, 0.82f, 0.857285714f, 0.571857143f, 0.286428571f, 0.001f};
  const Schedule lines = one_cycle({.max_rate = 1,
                                    .total = 7,
                                    .rise = 0.5,
                                    .div_factor = 10,
                                    .final_div_factor = 100,
                                    .anneal = Anneal::linear});
  for (int step = 0; step < 7; ++step) EXPECT_NEAR(lines(step), straight[step], 1e-7) << step;
}

TEST(Schedule, IsAPureFunctionOfTheStep) {
  const Schedule curve = warm_up(3, one_cycle({.max_rate = 1, .total = 20}));
  std::vector<float> rates;
  for (int step = 0; step < 25; ++step) rates.push_back(curve(step));
  for (int step = 24; step >= 0; --step) EXPECT_EQ(curve(step), rates[static_cast<std::size_t>(step)]);
}

TEST(Schedule, RejectsInvalidArguments) {
  EXPECT_THROW(constant(-1), ArgumentError);
  EXPECT_THROW(constant(std::nan("")), ArgumentError);
  EXPECT_THROW(cosine(1, 0), ArgumentError);
  EXPECT_THROW(step_decay(1, 0), ArgumentError);
  EXPECT_THROW(multi_step(1, {5, 5}), ArgumentError);
  EXPECT_THROW(polynomial(1, 10, 0), ArgumentError);
  EXPECT_THROW(warm_up(-1, constant(1)), ArgumentError);
  EXPECT_THROW(warm_up(2, constant(1), 1.5), ArgumentError);
  EXPECT_THROW(warm_up(2, Schedule()), ArgumentError);
  EXPECT_THROW(one_cycle({.max_rate = 1, .total = 0}), ArgumentError);
  EXPECT_THROW(one_cycle({.max_rate = 1, .total = 5, .rise = 1.5}), ArgumentError);
}

}  // namespace athanor::schedules::schedule_test
