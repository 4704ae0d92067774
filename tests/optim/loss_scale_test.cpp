#include <limits>

#include "optim/sgd.h"
#include "optim/step.h"
#include "tests/support/mixed_run.h"
#include "tests/support/ops.h"

namespace athanor::loss_scale_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// One parameter, f16 or f32, whose gradient the test delivers.
struct OneWeight {
  explicit OneWeight(const LossScaling& rules, Precision precision = Precision::f32)
      : scaling(rules), arena({{"w", make()}}, {}, {.precision = precision}), meter(arena), sgd(arena) {
    step->loss_scale = scaling.initial;
  }

  static Tensor make() {
    const Tensor w = Tensor::from(std::vector<float>{1, 1}, {2});
    require_grad(w);
    return w;
  }

  /// A step whose gradient, scaled, is `g` twice.
  void run(float g, const GradientLimits& limits = {}) {
    arena.zero_grad();
    deliver(g);
    finish(limits);
  }
  void deliver(float g) {
    const Tensor& leaf = arena.parameters()[0].tensor;
    leaf_of(leaf).accumulate(cast(Tensor::from(std::vector<float>{g, g}, {2}), leaf.dtype()));
  }
  void finish(const GradientLimits& limits = {}) {
    meter.measure(step, limits);
    sgd.set_learning_rates(step, [](std::int64_t) { return 0.125; });
    sgd.step(step);
    finish_step(step, scaling, limits.outliers);
  }
  double weight() const { return arena.master(0).to_vector()[0]; }

  LossScaling scaling;
  ParameterArena arena;
  GradientMeter meter;
  Sgd sgd;
  StepBuffer step;
};

// The scaler as a state machine: what a sequence of steps makes of it --------------------------------------

struct ScalerCase {
  const char* name;
  const char* steps;  ///< '.' finite, 'i' an infinity, 'n' a NaN, 'r' saved and resumed
  LossScaling scaling;
  float scale;
  int counter, stuck, applied, overflows;
};

const LossScaling kQuick{.initial = 8, .growth_interval = 3, .floor = 2, .ceiling = 32};

const ScalerCase kScalerCases[] = {
    {"nothing_yet", "", kQuick, 8, 0, 0, 0, 0},
    {"before_it_grows", "..", kQuick, 8, 2, 0, 2, 0},
    {"grows", "...", kQuick, 16, 0, 0, 3, 0},
    {"counts_anew_after_growing", ".....", kQuick, 16, 2, 0, 5, 0},
    {"stops_at_the_ceiling", "............", kQuick, 32, 0, 0, 12, 0},
    {"inf_on_the_first_step", "i", kQuick, 4, 0, 0, 0, 1},
    {"nan_is_like_inf", "n", kQuick, 4, 0, 0, 0, 1},
    {"overflow_begins_the_count_anew", "..i..", kQuick, 4, 2, 0, 4, 1},
    {"grows_again_after_an_overflow", "..i...", kQuick, 8, 0, 0, 5, 1},
    {"reaching_the_floor_is_not_stuck", "ii", kQuick, 2, 0, 0, 0, 2},
    {"stuck_at_the_floor", "iiiii", kQuick, 2, 0, 3, 0, 5},
    {"unstuck_by_one_step", "iiiii.", kQuick, 2, 1, 0, 1, 5},
    {"resumed_in_the_middle", "..r.i.r..", kQuick, 16, 0, 0, 6, 1},
    {"resumed_with_the_scale_it_had", "...r..", kQuick, 16, 2, 0, 5, 0},
    {"resumed_while_stuck", "iiiiri", kQuick, 2, 0, 3, 0, 5},
    {"pinned", "..i.i....", LossScaling::fixed(1024), 1024, 0, 0, 7, 2},
    {"pinned_is_stuck_at_once", "iii", LossScaling::fixed(1), 1, 0, 3, 0, 3},
    {"other_factors",
     "...i",
     {.initial = 8, .growth = 4, .backoff = 0.25f, .growth_interval = 3},
     8,
     0,
     0,
     3,
     1},
};

class Scaler : public testing::TestWithParam<ScalerCase> {};

TEST_P(Scaler, Follows) {
  const ScalerCase& wanted = GetParam();
  OneWeight run(wanted.scaling);
  double weight = 1;
  for (const char event : std::string(wanted.steps)) {
    if (event == 'r') {
      const StepState saved = run.step.read();
      run.step.write(StepState{});
      run.step.write(saved);
      continue;
    }
    const float scale = run.step->loss_scale;
    run.run(event == '.' ? scale : event == 'i' ? kInf : kNaN);
    if (event == '.') weight -= 0.125;  // whatever the scale: the gradient is 1
    ASSERT_EQ(run.weight(), weight) << "after " << event;
  }
  EXPECT_EQ(run.step->loss_scale, wanted.scale);
  // A pinned scale counts, too, but what it counts towards changes nothing.
  if (!wanted.scaling.is_fixed()) {
    EXPECT_EQ(run.step->growth_counter, wanted.counter);
  }
  EXPECT_EQ(run.step->overflows_at_floor, wanted.stuck);
  EXPECT_EQ(run.step->applied_steps, wanted.applied);
  EXPECT_EQ(run.step->overflow_steps, wanted.overflows);
}

INSTANTIATE_TEST_SUITE_P(Steps, Scaler, testing::ValuesIn(kScalerCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(LossScale, StartsAndEndsWhereTheDefaultsSay) {
  const LossScaling defaults;
  EXPECT_EQ(defaults.initial, 0x1p16f);
  EXPECT_EQ(defaults.growth_interval, 2000);
  OneWeight run(defaults);
  for (int i = 0; i < 1999; ++i) run.run(1);
  EXPECT_EQ(run.step->loss_scale, 0x1p16f);
  run.run(1);
  EXPECT_EQ(run.step->loss_scale, 0x1p17f);
  for (int i = 0; i < 40; ++i) run.run(kInf);
  EXPECT_EQ(run.step->loss_scale, 1.0f);
  run.scaling.growth_interval = 1;
  for (int i = 0; i < 40; ++i) run.run(1);
  EXPECT_EQ(run.step->loss_scale, 0x1p24f);
}

TEST(LossScale, AnOverflowInAnyAccumulatedPassSkipsTheStep) {
  OneWeight run(kQuick);
  run.arena.zero_grad();
  run.deliver(kInf);
  run.deliver(-kInf);  // NaN by now, and not finite again after what follows
  run.deliver(1);
  run.finish();
  EXPECT_EQ(run.step->overflow_steps, 1);
  EXPECT_EQ(run.weight(), 1);
  run.arena.zero_grad();
  for (int pass = 0; pass < 4; ++pass) run.deliver(run.step->loss_scale / 4);
  run.finish();
  EXPECT_EQ(run.weight(), 1 - 0.125);
}

// Clipping sees unscaled gradients: with a scale of 1024 the gradient 1024 is 1, whose norm is sqrt(2).
TEST(LossScale, ClipsAfterUnscaling) {
  OneWeight loose(LossScaling::fixed(1024));
  loose.run(1024, {.max_norm = 1.5f});
  EXPECT_EQ(loose.weight(), 1 - 0.125);
  EXPECT_EQ(loose.step->clip_coefficient, 1.0f);
  EXPECT_FLOAT_EQ(loose.step->grad_norm, std::sqrt(2.0f));
  OneWeight by_norm(LossScaling::fixed(1024));
  by_norm.run(1024, {.max_norm = std::sqrt(2.0f) / 2});
  EXPECT_NEAR(by_norm.weight(), 1 - 0.125 / 2, 1e-7);
  OneWeight by_value(LossScaling::fixed(1024));
  by_value.run(1024, {.max_value = 0.25f});
  EXPECT_EQ(by_value.weight(), 1 - 0.125 / 4);
}

// 300^2 is beyond f16: the norm is summed in more.
TEST(LossScale, TheNormOfHalfGradientsDoesNotOverflow) {
  OneWeight run(LossScaling::fixed(1), Precision::f16);
  run.run(60000, {.max_norm = 1});
  EXPECT_EQ(run.step->applied_steps, 1);
  EXPECT_FLOAT_EQ(run.step->grad_norm, 60000 * std::sqrt(2.0f));
}

TEST(LossScale, RefusesSettingsOutOfRange) {
  EXPECT_NO_THROW(check(LossScaling{}));
  EXPECT_NO_THROW(check(LossScaling::fixed(0.5f)));
  EXPECT_THROW(check(LossScaling{.initial = 0.5f}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.initial = 0x1p25f}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.floor = 0}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.initial = kInf, .ceiling = kInf}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.growth = 0.5f}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.backoff = 0}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.backoff = 2}), ArgumentError);
  EXPECT_THROW(check(LossScaling{.growth_interval = 0}), ArgumentError);
  EXPECT_THROW(check(LossScaling::fixed(kNaN)), ArgumentError);
  EXPECT_THROW(check(GradientLimits{.max_norm = 0}), ArgumentError);
  EXPECT_THROW(check(GradientLimits{.outliers = {.z = kNaN}}), ArgumentError);
  EXPECT_THROW(check(GradientLimits{.outliers = {.z = 3, .decay = 1}}), ArgumentError);
  EXPECT_THROW(check(GradientLimits{.outliers = {.z = 3, .patience = 0}}), ArgumentError);
}

// Outliers -------------------------------------------------------------------------------------------------

TEST(OutlierGuard, SkipsOutliersAndFollowsLastingChanges) {
  OneWeight run(LossScaling::fixed(1));
  const GradientLimits limits{.outliers = {.z = 4, .decay = 0.95f, .warm_up = 10, .patience = 3}};
  for (int i = 0; i < 9; ++i) run.run(i % 2 ? 1.1f : 0.9f, limits);
  run.run(50, limits);  // the tenth norm: nothing is known well enough yet
  EXPECT_EQ(run.step->outlier_steps, 0);
  for (int i = 0; i < 400; ++i) run.run(i % 2 ? 1.1f : 0.9f, limits);
  EXPECT_NEAR(run.step->norm_mean, std::sqrt(2.0f), 0.01f);
  EXPECT_NEAR(std::sqrt(run.step->norm_variance), 0.1f * std::sqrt(2.0f), 0.01f);
  const StepState before = run.step.read();
  const double weight = run.weight();
  run.run(50, limits);
  EXPECT_EQ(run.step->outlier_steps, 1);
  EXPECT_EQ(run.step->applied_steps, before.applied_steps);
  EXPECT_EQ(run.step->growth_counter, before.growth_counter);
  EXPECT_EQ(run.step->norm_mean, before.norm_mean);
  EXPECT_EQ(run.weight(), weight);
  run.run(0.01f, limits);  // too small is no outlier
  EXPECT_EQ(run.step->outlier_steps, 1);
  // A norm that has moved for good is believed after `patience` steps.
  for (int i = 0; i < 3; ++i) run.run(50, limits);
  EXPECT_EQ(run.step->outlier_steps, 4);
  run.run(50, limits);
  EXPECT_EQ(run.step->outlier_steps, 4);
}

// `warm_up` norms are enough, and not one less. Where all are equal, 5 % of the mean count as a deviation.
TEST(OutlierGuard, KnowsEnoughAfterWarmUp) {
  const GradientLimits limits{.outliers = {.z = 4, .warm_up = 10}};
  for (const int known : {9, 10}) {
    OneWeight run(LossScaling::fixed(1));
    for (int i = 0; i < known; ++i) run.run(1, limits);
    run.run(50, limits);
    EXPECT_EQ(run.step->outlier_steps, known == 10 ? 1 : 0) << known;
  }
  for (const float norm : {1.18f, 1.22f}) {
    OneWeight run(LossScaling::fixed(1));
    for (int i = 0; i < 10; ++i) run.run(1, limits);
    run.run(norm, limits);
    EXPECT_EQ(run.step->outlier_steps, norm > 1.2f ? 1 : 0) << norm;
  }
}

// Outliers with a good step between them are no new level, however many.
TEST(OutlierGuard, PatienceIsForOutliersInARow) {
  const GradientLimits limits{.outliers = {.z = 4, .warm_up = 10, .patience = 3}};
  OneWeight run(LossScaling::fixed(1));
  for (int i = 0; i < 10; ++i) run.run(1, limits);
  for (int i = 0; i < 8; ++i) {
    run.run(50, limits);
    run.run(1, limits);
  }
  EXPECT_EQ(run.step->outlier_steps, 8);
  EXPECT_EQ(run.step->applied_steps, 18);
}

// A skipped step leaves no trace ---------------------------------------------------------------------------

class Skipped : public testing::TestWithParam<Precision> {};

TEST_P(Skipped, LeavesNoTrace) {
  test::check_skipped_leaves_no_trace(kCpu, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Skipped,
                         testing::Values(Precision::f32, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(LossScale, DynamicDecisionsInATraining) {
  const LossScaling scaling{.initial = 64, .growth_interval = 4, .floor = 16, .ceiling = 128};
  const auto run = test::mixed_run({.precision = Precision::f16,
                                    .scaling = scaling,
                                    .batches = test::count_to(16),
                                    .poisoned = {2, 8, 9, 10}});
  const float scales[] = {64, 64, 32, 32, 32, 32, 64, 64, 32, 16, 16, 16, 16, 16, 32, 32};
  ASSERT_EQ(run.steps.size(), std::size(scales));
  for (std::size_t i = 0; i < std::size(scales); ++i) {
    EXPECT_EQ(run.steps[i].loss_scale, scales[i]) << "after step " << i;
    EXPECT_EQ(run.steps[i].found_inf, i == 2 || (i >= 8 && i <= 10)) << i;
  }
  EXPECT_EQ(run.end.applied_steps, 12);
}

// What the scale is for ------------------------------------------------------------------------------------

// h passes through a * 2^14 * 2^-14: its gradient is below the least f16 on the way, unless it is scaled.
double loss_after_training(Precision precision, const LossScaling& scaling) {
  class Net final : public nn::Module {
   public:
    Net() {
      register_module("in", in);
      register_module("out", out);
      initialize(3);
    }
    Tensor forward(const Tensor& x) override { return out(affine(affine(sigmoid(in(x)), 0x1p14), 0x1p-14)); }
    nn::Linear in{8, 16}, out{16, 2};
  } net;
  ParameterArena arena(net.parameters(), {}, {.precision = precision});
  // Only the first layer: the last one would learn something by itself.
  Sgd sgd(arena, {Sgd::Group{{.parameters = selectors::under("in.")}, {.momentum = 0.9f}}}, 0);
  GradientMeter meter(arena);
  StepBuffer step(kCpu, {.loss_scale = scaling.initial});
  constexpr int kBatch = 512;
  std::vector<float> values(kBatch * 8);
  std::vector<std::int64_t> labels(kBatch);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_uniform(philox_word({1, 1}, i)) * 2 - 1;
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = values[i * 8] + values[i * 8 + 1] > 0;
  const Tensor x = cast(Tensor::from(values, {kBatch, 8}), compute_dtype(precision));
  const Tensor target = Tensor::from(labels, {kBatch});
  double last = 0;
  for (int i = 0; i < 60; ++i) {
    arena.zero_grad();
    const Tensor loss = cross_entropy(net(x), target);
    last = loss.item();
    backward_scaled(loss, step);
    meter.measure(step);
    sgd.set_learning_rates(step, [](std::int64_t) { return 2.0; });
    sgd.step(step);
    finish_step(step, scaling);
  }
  return last;
}

TEST(LossScale, HalfGradientsThatUnderflowNeedIt) {
  const double f32 = loss_after_training(Precision::f32, LossScaling::fixed(1));
  const double scaled = loss_after_training(Precision::f16, LossScaling{});
  const double unscaled = loss_after_training(Precision::f16, LossScaling::fixed(1));
  EXPECT_LT(f32, 0.45);
  EXPECT_NEAR(scaled, f32, 0.02);
  EXPECT_GT(unscaled, 0.6);
}

}  // namespace athanor::loss_scale_test
