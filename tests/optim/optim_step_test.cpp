// What a step does before optimizers see the gradients: their norm, clipping, whether all are finite.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "optim/ema.h"
#include "optim/sgd.h"
#include "tests/support/optim_training.h"

namespace athanor::optim_step_test {

using test::bytes_of;
using test::deliver;
using test::filled;
using test::kOptimizerKinds;
using test::OptimTraining;

TEST(Clip, NormCoefficientAndValueByHand) {
  const Tensor a = filled({2}, {0, 0}), b = filled({1}, {0});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Sgd sgd(arena);
  GradientMeter meter(arena);
  StepBuffer state;
  state->learning_rate[0] = 1;
  state->loss_scale = 4;
  deliver(a, {12, 16});
  deliver(b, {-48});  // unscaled 3, 4, -12: norm 13
  meter.measure(state);
  EXPECT_FLOAT_EQ(state->grad_norm, 13);
  EXPECT_EQ(state->clip_coefficient, 1);
  meter.measure(state, {.max_norm = 100});
  EXPECT_EQ(state->clip_coefficient, 1);
  meter.measure(state, {.max_norm = 6.5f, .max_value = 3});
  EXPECT_NEAR(state->clip_coefficient, 0.5, 1e-6);
  EXPECT_EQ(state->found_inf, 0);
  sgd.step(state);  // clipped by norm 1.5, 2, -6, then by value
  EXPECT_NEAR(a.data<float>()[0], -1.5, 1e-6);
  EXPECT_NEAR(a.data<float>()[1], -2, 1e-6);
  EXPECT_NEAR(b.data<float>()[0], 3, 1e-6);
  EXPECT_THROW(meter.measure(state, {.max_norm = 0}), ArgumentError);
}

TEST(Clip, LargeGradientsDoNotOverflowTheNorm) {
  for (const std::int64_t n : {4, 100}) {  // less than a vector; several, and some over
    const Tensor w = filled({n}, std::vector<float>(static_cast<std::size_t>(n)));
    ParameterArena arena({{"w", w}}, {});
    GradientMeter meter(arena);
    StepBuffer state;
    deliver(w, std::vector<float>(static_cast<std::size_t>(n), 1e30f));
    meter.measure(state, {.max_norm = 1});
    EXPECT_EQ(state->found_inf, 0) << n;
    EXPECT_FLOAT_EQ(state->grad_norm, std::sqrt(static_cast<float>(n)) * 1e30f);
  }
}

TEST(FoundInf, MakesTheStepANoOpBitForBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const std::string kind : kOptimizerKinds) {
      for (const float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        OptimTraining skipping(kind, precision), straight(kind, precision);
        Ema ema(skipping.arena);
        skipping.step();
        straight.step();
        ema.update(skipping.state);
        const auto average = bytes_of(std::get<Tensor>(ema.state_dict().begin()->value));
        const std::uint64_t hash = skipping.arena.weights_hash();
        std::vector<std::vector<std::byte>> weights;
        for (const Parameter& p : skipping.model.parameters) weights.push_back(bytes_of(p.tensor));
        skipping.step(bad);
        ema.update(skipping.state);
        EXPECT_EQ(skipping.state->found_inf, 1);
        EXPECT_EQ(skipping.state->applied_steps, 1);
        EXPECT_EQ(skipping.state->overflow_steps, 1);
        EXPECT_EQ(skipping.arena.weights_hash(), hash) << kind;
        EXPECT_EQ(bytes_of(std::get<Tensor>(ema.state_dict().begin()->value)), average);
        for (std::size_t i = 0; i < weights.size(); ++i) {
          EXPECT_EQ(bytes_of(skipping.model.parameters[i].tensor), weights[i]) << kind;
        }
        // The state is untouched too: both go on alike.
        skipping.step();
        straight.step();
        EXPECT_EQ(skipping.arena.weights_hash(), straight.arena.weights_hash()) << kind;
      }
    }
  }
}

}  // namespace athanor::optim_step_test
