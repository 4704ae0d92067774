#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "optim/step.h"

namespace athanor {
namespace {

Tensor filled(const Shape& shape, std::vector<float> values) {
  Tensor x = Tensor::from(values, shape);
  require_grad(x);
  return x;
}

void deliver(const Tensor& leaf, std::vector<float> gradient) {
  leaf_of(leaf).accumulate(Tensor::from(gradient, leaf.shape()));
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw_data(), x.raw_data() + x.bytes()};
}

// By hand, mu = 0.5, lambda = 0.1, lr = 0.2, w = 1, g = 1 twice: g' = 1.1, b = 1.1, w = 0.78;
// g' = 1.078, b = 0.55 + 1.078 = 1.628, w = 0.78 - 0.3256 = 0.4544.
TEST(Sgd, TwoStepsByHand) {
  const Tensor w = filled({1}, {1});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.5f, .weight_decay = 0.1f});
  StepState state;
  state.learning_rate[0] = 0.2f;
  for (const double expected : {0.78, 0.4544}) {
    arena.zero_grad();
    deliver(w, {1});
    sgd.step(state);
    EXPECT_NEAR(w.item(), expected, 1e-7);
  }
}

// Dampening spares the first update: b = g = 1, then 0.5 + 0.75 * 1 = 1.25.
TEST(Sgd, DampeningBeginsAtTheSecondUpdate) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.5f, .dampening = 0.25f});
  StepState state;
  state.learning_rate[0] = 1;
  for (const double expected : {-1.0, -2.25}) {
    arena.zero_grad();
    deliver(w, {1});
    sgd.step(state);
    EXPECT_NEAR(w.item(), expected, 1e-7);
  }
}

TEST(Sgd, RefusesOptionsOutOfRange) {
  ParameterArena arena({{"w", filled({1}, {1})}}, {});
  EXPECT_THROW(Sgd(arena, {.momentum = 1.0f}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.momentum = -0.1f}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.weight_decay = -1}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.nesterov = true}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.momentum = 0.9f, .dampening = 0.1f, .nesterov = true}), ArgumentError);
  EXPECT_THROW(Sgd(arena, std::vector<Sgd::Group>{}, 0), ArgumentError);
  EXPECT_THROW(Sgd(arena, {Sgd::Group{{.parameters = selectors::named({"v"})}, {}}}, 0), ArgumentError);
}

TEST(Optimizer, GroupsHaveTheirOwnRateDecayAndMomentum) {
  const Tensor a = filled({2}, {1, 1}), b = filled({1}, {1}), c = filled({1}, {1}), d = filled({1}, {1});
  ParameterArena arena({{"a.weight", a}, {"a.bias", b, false, false}, {"rest", c}, {"fixed", d}}, {});
  Sgd sgd(arena,
          {Sgd::Group{{.parameters = selectors::under("a."), .lr_scale = 2}, {.weight_decay = 0.5f}},
           Sgd::Group{{.parameters = selectors::named({"rest"}), .schedule = schedules::constant(0.25)}, {}}},
          0);
  StepState state;
  sgd.set_learning_rates(state, schedules::linear(0.1, 10));
  EXPECT_FLOAT_EQ(state.learning_rate[0], 0.2f);
  EXPECT_FLOAT_EQ(state.learning_rate[1], 0.25f);
  state.applied_steps = 5;
  sgd.set_learning_rates(state, schedules::linear(0.1, 10));
  EXPECT_FLOAT_EQ(state.learning_rate[0], 0.1f);
  deliver(a, {1, 2});
  deliver(b, {1});
  deliver(c, {1});
  deliver(d, {1});
  sgd.step(state);
  EXPECT_FLOAT_EQ(a.data<float>()[0], 1 - 0.1f * 1.5f);
  EXPECT_FLOAT_EQ(a.data<float>()[1], 1 - 0.1f * 2.5f);
  EXPECT_FLOAT_EQ(b.data<float>()[0], 0.9f) << "decay is off for this parameter";
  EXPECT_FLOAT_EQ(c.data<float>()[0], 0.75f);
  EXPECT_EQ(d.data<float>()[0], 1) << "in no group";
  EXPECT_EQ(sgd.selected(), (std::vector<int>{0, 1, 2}));
}

TEST(Optimizer, SkipsParametersWithoutAGradient) {
  const Tensor a = filled({2}, {1, 2}), b = filled({2}, {3, 4});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Sgd sgd(arena, {.momentum = 0.9f, .weight_decay = 0.1f});
  StepState state;
  state.learning_rate[0] = 0.1f;
  deliver(a, {1, 1});
  deliver(b, {1, 1});
  sgd.step(state);
  const auto before = bytes_of(b);
  arena.zero_grad();
  deliver(a, {1, 1});
  sgd.step(state);
  EXPECT_EQ(bytes_of(b), before);
  EXPECT_NE(a.data<float>()[0], 1 - 0.11f);
}

TEST(Optimizer, GradientsAreLeftAlone) {
  const Tensor w = filled({3}, {1, 2, 3});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true});
  GradientMeter meter(arena);
  StepState state;
  state.learning_rate[0] = 0.1f;
  deliver(w, {10, -20, 30});
  const auto before = bytes_of(arena.gradient(0));
  meter.measure(state, {.max_norm = 1, .max_value = 0.5f});
  sgd.step(state);
  EXPECT_EQ(bytes_of(arena.gradient(0)), before);
}

TEST(Clip, NormCoefficientAndValueByHand) {
  const Tensor a = filled({2}, {0, 0}), b = filled({1}, {0});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Sgd sgd(arena);
  GradientMeter meter(arena);
  StepState state;
  state.learning_rate[0] = 1;
  state.loss_scale = 4;
  deliver(a, {12, 16});
  deliver(b, {-48});  // unscaled 3, 4, -12: norm 13
  meter.measure(state);
  EXPECT_FLOAT_EQ(state.grad_norm, 13);
  EXPECT_EQ(state.clip_coefficient, 1);
  meter.measure(state, {.max_norm = 100});
  EXPECT_EQ(state.clip_coefficient, 1);
  meter.measure(state, {.max_norm = 6.5f, .max_value = 3});
  EXPECT_NEAR(state.clip_coefficient, 0.5, 1e-6);
  EXPECT_EQ(state.found_inf, 0);
  sgd.step(state);  // clipped by norm 1.5, 2, -6, then by value
  EXPECT_NEAR(a.data<float>()[0], -1.5, 1e-6);
  EXPECT_NEAR(a.data<float>()[1], -2, 1e-6);
  EXPECT_NEAR(b.data<float>()[0], 3, 1e-6);
  EXPECT_THROW(meter.measure(state, {.max_norm = 0}), ArgumentError);
}

TEST(Clip, LargeGradientsDoNotOverflowTheNorm) {
  const Tensor w = filled({4}, {0, 0, 0, 0});
  ParameterArena arena({{"w", w}}, {});
  GradientMeter meter(arena);
  StepState state;
  deliver(w, {1e30f, 1e30f, 1e30f, 1e30f});
  meter.measure(state, {.max_norm = 1});
  EXPECT_EQ(state.found_inf, 0);
  EXPECT_FLOAT_EQ(state.grad_norm, 2e30f);
}

TEST(FoundInf, MakesTheStepANoOpBitForBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const Tensor a = filled({3}, {1, 2, 3}), b = filled({2}, {4, 5});
      ParameterArena arena({{"a", a}, {"b", b, true}}, {}, precision, kCpu);
      Sgd sgd(arena, {.momentum = 0.9f});
      GradientMeter meter(arena);
      StepState state;
      state.learning_rate[0] = 0.1f;
      const auto step = [&](float element) {
        arena.zero_grad();
        deliver(a, {1, element, 1});
        deliver(b, {1, 1});
        meter.measure(state);
        sgd.step(state);
        finish_step(kCpu, state);
      };
      step(1);
      const std::uint64_t hash = arena.weights_hash();
      const auto weights = bytes_of(a), kept = bytes_of(b);
      step(bad);
      EXPECT_EQ(state.found_inf, 1);
      EXPECT_EQ(state.applied_steps, 1);
      EXPECT_EQ(state.skipped_steps, 1);
      EXPECT_EQ(arena.weights_hash(), hash);
      EXPECT_EQ(bytes_of(a), weights);
      EXPECT_EQ(bytes_of(b), kept);
      step(1);
      EXPECT_EQ(state.applied_steps, 2);
      EXPECT_FLOAT_EQ(b.data<float>()[0], 4 - 0.1f - 0.19f) << "momentum went on from the first step";
    }
  }
}

}  // namespace
}  // namespace athanor
