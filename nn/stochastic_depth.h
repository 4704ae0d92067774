#pragma once

#include "nn/module.h"

namespace athanor::nn {

/// Drops a residual branch for single samples: in training, all of x[n] becomes 0 with probability p, else it
/// is scaled by 1 / (1 - p); the identity in evaluation and where p is 0. x [N, ...] floating. Which samples
/// is drawn as dropout() draws elements: the same ones for any number of ranks.
/// Source: Huang et al. 2016, arXiv:1603.09382 (a draw for each sample: "drop path", Larsson et al. 2017).
class StochasticDepth final : public Module {
 public:
  explicit StochasticDepth(double p);
  Tensor forward(const Tensor& x) override;

  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace athanor::nn
