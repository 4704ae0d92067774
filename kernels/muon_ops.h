#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/muon.h"
#include "kernels/update_ops.h"

// Muon's maths besides the matrix products, written once.

namespace athanor::kernels {

/// The running average of a matrix's gradients, and the matrix to orthogonalise: see muon_momentum().
struct MuonMomentumOp {
  float keep, ahead;  ///< 1 - mu; mu by Nesterov, else 1
  ATH_HD MuonMomentumOp(float mu, bool nesterov)
      : keep(static_cast<float>(1.0 - mu)), ahead(nesterov ? mu : 1.0f) {}
  ATH_HD float operator()(float g, float& b) const {
    b = std::fma(keep, g - b, b);
    return std::fma(ahead, b - g, g);
  }
};

/// Muon's update along a direction x: see muon_apply().
struct MuonApplyOp {
  float grow, rate, decay;
  ATH_HD MuonApplyOp(const MuonStep& muon, float lr, bool decays, float growth)
      : grow(growth), rate(lr * muon.rate_scale), decay(decays ? lr * muon.weight_decay : 0.0f) {}
  ATH_HD void operator()(float x, float& w) const {
    const float grown = grow * w;
    w = grown - std::fma(rate, x, decay * grown);
  }
};
/// The factor that scales weights with that sum of squares to MuonStep::weight_norm.
ATH_HD inline float muon_growth(const MuonStep& muon, double squares) {
  const double norm = std::sqrt(squares);
  return norm > 0 ? static_cast<float>(muon.weight_norm / norm) : 1.0f;
}

/// Calls f.operator()<T>() with the type of Muon's matrices, f32 or bf16.
template <class F> void dispatch_matrix(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f.template operator()<BFloat16>();
  f.template operator()<float>();
}

/// The factor in normalize().
ATH_HD inline float normalizing_factor(double squares, float eps) {
  return static_cast<float>(1.0 / std::max(std::sqrt(squares), static_cast<double>(eps)));
}

}  // namespace athanor::kernels
