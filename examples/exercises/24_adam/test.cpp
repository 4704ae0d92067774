#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/update_ops.h"

namespace {

using namespace athanor::kernels;

AdamGroup group(float eps, float decay) {
  AdamGroup result{};
  result.beta1 = 0.9, result.beta2 = 0.999, result.eps = eps, result.weight_decay = decay;
  return result;
}

struct Weight {
  float w = 1, m = 0, v = 0;
  template <bool Decoupled>
  void step(const AdamGroup& settings, float g, std::int64_t updates, float rate = 0.01f) {
    adam_op<Decoupled>(settings, rate, true, updates)(g, w, m, v);
  }
};

// By the formulas of the text, in double.
struct Exact {
  double w = 1, m = 0, v = 0;
  void step(bool decoupled, double eps, double decay, double g, int t, double rate = 0.01) {
    if (!decoupled) g += decay * w;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double delta =
        rate * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + eps);
    w -= delta + (decoupled ? rate * decay * w : 0);
  }
};

TEST(Adam, FirstStepIsTheLearningRate) {
  for (const float g : {1e-3f, 0.5f, -20.0f}) {
    Weight weight;
    weight.step<false>(group(1e-12f, 0), g, 0);
    ASSERT_TRUE(std::isfinite(weight.w))
        << "1 - beta^0 is 0: t is 1 at the first update, when `updates` is 0";
    const double moved = std::fabs(weight.w - 1) / 0.01;
    EXPECT_LT(moved, 2.5) << "the first step is " << moved
                          << " times the learning rate: both averages need their correction";
    EXPECT_GT(moved, 0.5) << "the first step is " << moved
                          << " times the learning rate: m is corrected, v is not, or t is too large";
    EXPECT_NEAR(moved, 1, 1e-4) << "m^ / sqrt(v^) is 1 or -1 at the first step, whatever the gradient";
  }
}

TEST(Adam, FollowsTheFormula) {
  Weight weight;
  Exact exact;
  for (int t = 1; t <= 200; ++t) {
    const double g = std::sin(0.7 * t) + 0.2;
    weight.step<false>(group(1e-8f, 0.03f), static_cast<float>(g), t - 1);
    exact.step(false, 1e-8, 0.03f, static_cast<float>(g), t);
    ASSERT_NEAR(weight.w, exact.w, 2e-5)
        << "at step " << t << (t < 5 ? ": right at first?" : ": the correction must fade as t grows");
  }
}

TEST(Adam, AddsEpsAfterTheRoot) {
  Weight weight;
  Exact exact;
  weight.step<false>(group(0.5f, 0), 0.25f, 0);
  exact.step(false, 0.5, 0, 0.25, 1);
  EXPECT_NEAR(weight.w, exact.w, 1e-7)
      << "eps is added to sqrt(v^), which is |g| at the first step: 1 - 0.01 * 0.25 / (0.25 + 0.5)";
}

TEST(AdamW, DecaysTheWeightNotTheGradient) {
  Weight still;
  still.step<true>(group(1e-8f, 0.5f), 0, 0);
  EXPECT_NEAR(still.w, 1 - 0.01 * 0.5, 1e-7)
      << "without a gradient the weight shrinks by rate * lambda; through the gradient it would move by the "
         "whole learning rate";
  Weight twice;
  twice.step<true>(group(1e-8f, 0.5f), 0, 0, 0.02f);
  EXPECT_NEAR(twice.w, 1 - 0.02 * 0.5, 1e-7) << "the decay is scaled by the learning rate";
  Weight weight;
  Exact exact;
  for (int t = 1; t <= 100; ++t) {
    weight.step<true>(group(1e-8f, 0.1f), static_cast<float>(std::cos(t)), t - 1);
    exact.step(true, 1e-8, 0.1f, static_cast<float>(std::cos(t)), t);
  }
  EXPECT_NEAR(weight.w, exact.w, 2e-5) << "after 100 steps";
}

TEST(Adam, OthersAreAsTheyWere) {
  SgdGroup sgd{};
  sgd.momentum = 0.9f, sgd.weight_decay = 0.5f;
  float w = 1, b = 0;
  momentum_op<false>(sgd, 0.1f, true, 0)(2.0f, w, b);
  EXPECT_FLOAT_EQ(w, 0.75f) << "SGD with momentum needs no change";
}

}  // namespace
