#pragma once

#include "nn/module.h"

namespace athanor::nn {

/// Drops a residual branch per sample: in training, x[n] becomes 0 with probability p, else it is scaled by 1
/// / (1 - p). The identity in evaluation and for p = 0. x [N, ...] floating. The random choice works as in
/// dropout(): it does not depend on the number of ranks.
/// Source: Huang et al. 2016, arXiv:1603.09382 (per sample: "drop path", Larsson et al. 2017).
class StochasticDepth final : public Module {
 public:
  explicit StochasticDepth(double p);
  Tensor forward(const Tensor& x) override;

  double p() const { return p_; }
  /// Throws ArgumentError outside [0, 1].
  void set_p(double p);

 private:
  double p_;
};

}  // namespace athanor::nn
