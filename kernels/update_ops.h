#pragma once

#include <cmath>

#include "tensor/half.h"

// The maths of the parameter updates, written once: every backend instantiates these functors on float. Each
// takes the gradient of one element, unscaled and clipped, and changes the master weight and the state.
// Products that are added use std::fma: one rounding where the textbook has two.

namespace athanor::kernels {

/// Undoes the loss scale and clips: first by norm, then by value. NaN stays NaN.
struct GradientScale {
  float factor = 1;  ///< clip coefficient / loss scale
  float limit = 0;   ///< infinity: no clipping by value
  ATH_HD float operator()(float g) const {
    g *= factor;
    return g > limit ? limit : (g < -limit ? -limit : g);
  }
};

/// g += lambda w;  w -= lr g.
struct SgdOp {
  float lr, weight_decay;
  ATH_HD void operator()(float g, float& w) const { w = std::fma(-lr, std::fma(weight_decay, w, g), w); }
};

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

/// m += (1 - beta1)(g - m);  v += (1 - beta2)(g^2 - v);  w -= step m / (sqrt(v) scale + eps), where
/// step = lr / (1 - beta1^t) and scale = 1 / sqrt(1 - beta2^t). Decay is added to g (Adam) or taken from w
/// (AdamW: w -= lr lambda w, in the same rounding). The moments move towards g rather than being shrunk and
/// added to: a beta rounded to f32 would be off by 3e-8 at every step, in the same direction.
/// Source: Kingma and Ba 2015, arXiv:1412.6980; Loshchilov and Hutter 2019, arXiv:1711.05101.
template <bool Decoupled> struct AdamOp {
  float step, scale, eps, one_minus_beta1, one_minus_beta2;
  float decay;  ///< lambda, or lr lambda where decoupled
  ATH_HD void operator()(float g, float& w, float& m, float& v) const {
    if constexpr (!Decoupled) g = std::fma(decay, w, g);
    m = std::fma(one_minus_beta1, g - m, m);
    v = std::fma(one_minus_beta2, std::fma(g, g, -v), v);
    const float denominator = std::fma(std::sqrt(v), scale, eps);
    float delta = step * m / denominator;
    if constexpr (Decoupled) delta = std::fma(decay, w, delta);
    w -= delta;
  }
};

/// Moves an average a fraction `rate` of the way to x.
struct AverageOp {
  float rate;
  ATH_HD void operator()(float x, float& average) const { average = std::fma(rate, x - average, average); }
};

}  // namespace athanor::kernels
