#pragma once  // Explained in docs/loss_scale.md and docs/determinism.md.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/step_state.h"
#include "kernels/update.h"

// The maths of the parameter updates, written once: every backend instantiates these functors on float. Each
// takes the unscaled, clipped gradient of one element and changes the master weight and the state. Sums of
// products use std::fma: one rounding where the textbook has two. Each is followed by its constructor from a
// parameter's group options, the learning rate and the number of updates. ATH_UPDATE_RULES lists the
// optimizers.

namespace athanor::kernels {

inline constexpr std::int32_t kManyNorms = 1 << 20;  ///< cap of StepState::norm_count

/// Undoes the loss scale and clips: first by norm, then by value. NaN stays NaN.
struct GradientScale {
  float factor = 1;  ///< clip coefficient / loss scale
  float limit = 0;   ///< infinity: no clipping by value
  ATH_HD float operator()(float g) const {
    g *= factor;
    return g > limit ? limit : (g < -limit ? -limit : g);
  }
};

ATH_HD inline GradientScale gradient_scale(const StepState& step) {
  return {step.clip_coefficient / step.loss_scale, step.clip_value};
}

/// The options of SGD for one group of parameters.
struct SgdGroup {
  float momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// The same of Adam and AdamW.
struct AdamGroup {
  double beta1 = 0.9, beta2 = 0.999;
  float eps = 1e-8f, weight_decay = 0;
  bool decoupled = false;  ///< AdamW
};

/// g += lambda w;  w -= lr g.
struct SgdOp {
  float lr, weight_decay;
  ATH_HD void operator()(float g, float& w) const { w = std::fma(-lr, std::fma(weight_decay, w, g), w); }
};

ATH_HD inline SgdOp sgd_op(const SgdGroup& group, float lr, bool decay) {
  return {lr, decay ? group.weight_decay : 0.0f};
}

/// g += lambda w;  b = mu b + (1 - tau) g, or g at the first step;  w -= lr b, or lr (g + mu b) by Nesterov.
/// Source: Sutskever et al. 2013 (momentum), in the form of torch.optim.SGD, where lr scales b.
template <bool Nesterov> struct MomentumOp {
  float lr, weight_decay, momentum, keep;  ///< keep = 1 - dampening; at the first step momentum 0 and keep 1
  float look_ahead;                        ///< momentum, also at the first step
  ATH_HD void operator()(float g, float& w, float& b) const {
    g = std::fma(weight_decay, w, g);
    b = std::fma(momentum, b, keep * g);
    w = std::fma(-lr, Nesterov ? std::fma(look_ahead, b, g) : b, w);
  }
};

/// The step of SGD with momentum for a parameter that has been updated `updates` times; `decay`: weight decay
/// applies.
template <bool Nesterov>
ATH_HD inline MomentumOp<Nesterov> momentum_op(const SgdGroup& group, float lr, bool decay,
                                               std::int64_t updates) {
  const bool first = updates == 0;
  return {lr, decay ? group.weight_decay : 0.0f, first ? 0.0f : group.momentum,
          first ? 1.0f : static_cast<float>(1.0 - group.dampening), group.momentum};
}

/// m += (1 - beta1)(g - m);  v += (1 - beta2)(g^2 - v);  w -= step m / (sqrt(v) scale + eps), where step = lr
/// / (1 - beta1^t) and scale = 1 / sqrt(1 - beta2^t). Decay is added to g (Adam) or subtracted from w (AdamW:
/// w -= lr lambda w, in the same rounding). Moments move towards g instead of being multiplied by beta: a
/// beta rounded to f32 would add an error of 3e-8 at every step, always in one direction. A beta below 1/2
/// multiplies: a moment that moves nearly all the way to a much smaller g would keep its own rounding.
/// Source: Kingma and Ba 2015, arXiv:1412.6980; Loshchilov and Hutter 2019, arXiv:1711.05101.
template <bool Decoupled> struct AdamOp {
  float step, scale, eps, one_minus_beta1, one_minus_beta2;
  float decay;  ///< lambda, or lr lambda where decoupled
  ATH_HD void operator()(float g, float& w, float& m, float& v) const {
    if constexpr (!Decoupled) g = std::fma(decay, w, g);
    m = one_minus_beta1 > 0.5f ? std::fma(one_minus_beta1, g, std::fma(-one_minus_beta1, m, m))
                               : std::fma(one_minus_beta1, g - m, m);
    v = one_minus_beta2 > 0.5f ? std::fma(one_minus_beta2 * g, g, std::fma(-one_minus_beta2, v, v))
                               : std::fma(one_minus_beta2, std::fma(g, g, -v), v);
    const float denominator = std::fma(std::sqrt(v), scale, eps);
    float delta = step * m / denominator;
    if constexpr (Decoupled) delta = std::fma(decay, w, delta);
    w -= delta;
  }
};

/// The step of Adam or AdamW for a parameter that has been updated `updates` times; `decay`: weight decay
/// applies.
template <bool Decoupled>
ATH_HD inline AdamOp<Decoupled> adam_op(const AdamGroup& group, float rate, bool decay,
                                        std::int64_t updates) {
  const double t = static_cast<double>(updates + 1), lr = rate;
  const double lambda = decay ? group.weight_decay : 0.0;
  return {static_cast<float>(lr / (1.0 - std::pow(group.beta1, t))),
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(group.beta2, t))),
          group.eps,
          static_cast<float>(1.0 - group.beta1),
          static_cast<float>(1.0 - group.beta2),
          static_cast<float>(Decoupled ? lr * lambda : lambda)};
}

/// The rule of an optimizer: `Group` are its options, `make` the op of a parameter, which changes an element
/// and its kStates values of state. Groups of a `variant` use the other op, which has the same fields.
struct SgdRule {
  using Group = SgdGroup;
  using Op = SgdOp;
  using Variant = SgdOp;
  static constexpr const char* kName = "sgd_update";
  static constexpr int kStates = 0;
  ATH_HD static bool variant(const Group&) { return false; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t) {
    return sgd_op(group, lr, decay);
  }
};
struct MomentumRule {
  using Group = SgdGroup;
  using Op = MomentumOp<false>;
  using Variant = MomentumOp<true>;
  static constexpr const char* kName = "sgd_update";
  static constexpr int kStates = 1;
  ATH_HD static bool variant(const Group& group) { return group.nesterov; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t updates) {
    return momentum_op<false>(group, lr, decay, updates);
  }
};
struct AdamRule {
  using Group = AdamGroup;
  using Op = AdamOp<false>;
  using Variant = AdamOp<true>;
  static constexpr const char* kName = "adam_update";
  static constexpr int kStates = 2;
  ATH_HD static bool variant(const Group& group) { return group.decoupled; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t updates) {
    if (group.decoupled) return std::bit_cast<Op>(adam_op<true>(group, lr, decay, updates));
    return adam_op<false>(group, lr, decay, updates);
  }
};

/// Every rule: drives the instantiations of update_parameters() of each backend.
#define ATH_UPDATE_RULES(X) X(SgdRule) X(MomentumRule) X(AdamRule)

/// Moves an average towards x by a fraction `rate` of the distance.
struct AverageOp {
  float rate;
  ATH_HD void operator()(float x, float& average) const { average = std::fma(rate, x - average, average); }
};

ATH_HD inline AverageOp average_op(const StepState& step, const AverageRule& rule) {
  const auto steps = step.applied_steps + 1;
  if (steps % rule.every != 0) return {0};
  const double t = static_cast<double>(steps / rule.every);
  return {static_cast<float>(1.0 - (rule.warm_up ? std::min(rule.decay, (1 + t) / (10 + t)) : rule.decay))};
}

/// Updates the state in measure_gradients(), from the sum of squares of all (scaled) gradients.
ATH_HD inline void measure(StepState& step, double squares, const GradientLimits& limits) {
  const double norm = std::sqrt(squares) / step.loss_scale;
  const bool finite = squares <= std::numeric_limits<double>::max();
  step.found_inf = !finite || (limits.later_update && step.found_inf != 0);
  step.grad_norm = static_cast<float>(norm);
  step.clip_value = limits.max_value;
  const bool clips = finite && limits.max_norm <= std::numeric_limits<float>::max();
  step.clip_coefficient = clips ? static_cast<float>(std::min(1.0, limits.max_norm / (norm + 1e-6))) : 1.0f;
  const OutlierGuard& guard = limits.outliers;
  const float deviation = std::max(std::sqrt(step.norm_variance), 0.05f * step.norm_mean);
  step.found_outlier =
      finite && step.norm_count >= guard.warm_up && step.grad_norm - step.norm_mean > guard.z * deviation;
}

/// Reduces the loss scale after an overflow.
ATH_HD inline void back_off(StepState& step, const LossScaling& scaling) {
  const float lower = std::max(scaling.floor, step.loss_scale * scaling.backoff);
  step.overflows_at_floor = lower < step.loss_scale ? 0 : step.overflows_at_floor + 1;
  step.loss_scale = std::min(step.loss_scale, lower);
  step.growth_counter = 0;
}
/// Updates the loss scale after an applied step.
ATH_HD inline void grow(StepState& step, const LossScaling& scaling) {
  step.overflows_at_floor = 0;
  if (++step.growth_counter < scaling.growth_interval) return;
  // By value: references, as in std::min and std::max, would put the settings on a kernel's stack.
  const float wanted = step.loss_scale * scaling.growth;
  const float grown = wanted < scaling.ceiling ? wanted : scaling.ceiling;
  if (grown > step.loss_scale) step.loss_scale = grown;
  step.growth_counter = 0;
}

/// Adds the norm of an applied step to the averages. The first norms have equal weight: 1, 1/2, 1/3, ...
ATH_HD inline void remember_norm(StepState& step, const OutlierGuard& guard) {
  const float weight = std::max(1.0f - guard.decay, 1.0f / static_cast<float>(step.norm_count + 1));
  const float away = step.grad_norm - step.norm_mean;
  step.norm_mean = std::fma(weight, away, step.norm_mean);
  step.norm_variance = (1.0f - weight) * std::fma(weight * away, away, step.norm_variance);
  if (step.norm_count < kManyNorms) ++step.norm_count;
  step.outliers_in_a_row = 0;
}

/// finish_step() for one step.
ATH_HD inline void finish(StepState& step, const LossScaling& scaling, const OutlierGuard& guard) {
  if (step.found_inf) {
    ++step.overflow_steps;
    back_off(step, scaling);
  } else if (step.found_outlier) {
    ++step.outlier_steps;
    if (++step.outliers_in_a_row >= guard.patience) step.norm_count = step.outliers_in_a_row = 0;
  } else {
    ++step.applied_steps;
    grow(step, scaling);
    remember_norm(step, guard);
  }
}

/// Calls f.operator()<G, W>() with the types of gradients and compute copy; W is float if there is no copy.
template <class F> void dispatch_update(const UpdateTable& table, const F& f) {
  dispatch_floating(table.gradients.dtype(), "update", [&]<class G>() {
    if constexpr (!std::is_same_v<G, double>) {
      if (!table.weights.defined()) {
        if constexpr (std::is_same_v<G, float>) f.template operator()<float, float>();
      } else if (table.weights.dtype() == DType::bf16) {
        if constexpr (!std::is_same_v<G, Half>) f.template operator()<G, BFloat16>();
      } else {
        if constexpr (!std::is_same_v<G, BFloat16>) f.template operator()<G, Half>();
      }
    }
  });
}

}  // namespace athanor::kernels
