#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "scaler.h"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Scaler, SkippedStepsDoNotCount) {
  Scaler scaler;
  for (int i = 0; i < 3; ++i) scaler.step(kInfinity);
  EXPECT_EQ(scaler.rate(), 1)
      << "skipped steps were counted: the learning rate fell although nothing was learned";
  scaler.step(0);
  EXPECT_EQ(scaler.rate(), 0.5f) << "an applied step counts, also with a gradient of 0";
}

TEST(Scaler, LimitsTheUnscaledGradient) {
  Scaler within;
  within.step(0.5f * 65536);
  EXPECT_NE(within.weight, 1 - 0x1p-16f)
      << "the scaled gradient was limited: a true one of 1/2 became 1/65536";
  EXPECT_EQ(within.weight, 0.5f) << "a true gradient of 1/2 is within the limit";
  Scaler beyond;
  beyond.step(-7.0f * 65536);
  EXPECT_EQ(beyond.weight, 2) << "a true gradient of -7 is limited to -1";
  Scaler smaller;
  smaller.step(kInfinity);
  smaller.step(0.5f * 32768);
  EXPECT_EQ(smaller.weight, 0.5f) << "after an overflow, gradients are scaled by half as much";
}

TEST(Scaler, FallsToOneAndRises) {
  Scaler scaler;
  for (int i = 0; i < 40; ++i) scaler.step(kInfinity);
  EXPECT_EQ(scaler.scale, 1) << "below 1 the scale would make gradients smaller than they are";
  for (int i = 0; i < 1999; ++i) scaler.step(0);
  EXPECT_EQ(scaler.scale, 1) << "2,000 applied steps in a row are needed";
  scaler.step(0);
  EXPECT_EQ(scaler.scale, 2)
      << "after one bad batch the scale is low for ever: it must double after 2,000 applied steps";
  for (int i = 0; i < 1999; ++i) scaler.step(0);
  EXPECT_EQ(scaler.scale, 2) << "the count begins again after the scale has doubled";
  scaler.step(kInfinity);
  EXPECT_EQ(scaler.scale, 1);
  scaler.step(0);
  EXPECT_EQ(scaler.scale, 1) << "the count begins again at an overflow";
  Scaler high;
  for (int i = 0; i < 4000; ++i) high.step(0);
  EXPECT_EQ(high.scale, 65536) << "65,536 is the largest scale";
}

TEST(Scaler, SkippedStepsChangeNothing) {
  Scaler scaler;
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    scaler.step(bad);
    EXPECT_EQ(scaler.weight, 1) << "a step with a gradient of " << bad << " changed the weight";
  }
  EXPECT_EQ(scaler.scale, 8192) << "infinity, -infinity and NaN are overflows";
}

TEST(Scaler, AgreesWithTraining) {  // of (w - 3)^2 / 2, in f16: what is larger than 65504 overflows
  Scaler scaler;
  float weight = 1;
  int applied = 0;
  for (int i = 0; i < 50; ++i) {
    const float scaled = scaler.scale * (scaler.weight - 3);
    const bool overflows = std::fabs(scaled) > 65504;
    scaler.step(overflows ? std::copysign(kInfinity, scaled) : scaled);
    if (!overflows) weight -= std::fmin(std::fmax(weight - 3, -1.0f), 1.0f) / static_cast<float>(++applied);
  }
  EXPECT_EQ(scaler.weight, weight) << "training with overflows must end where training without them does";
}

}  // namespace
