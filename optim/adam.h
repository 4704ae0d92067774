#pragma once

#include <vector>

#include "kernels/update_ops.h"
#include "optim/optimizer.h"

namespace athanor {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  float eps = 1e-8f;
  float weight_decay = 0;         ///< lambda; added to the gradient, so both moments include it
  Decay decay = Decay::matrices;  ///< what weight_decay applies to; PyTorch: all
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999;
  float eps = 1e-8f;
  float weight_decay = 1e-2f;     ///< lambda; w -= lr lambda w, which the moments do not include
  Decay decay = Decay::matrices;  ///< what weight_decay applies to; PyTorch: all
};

/// Adam or AdamW, by their options. State: two f32 per parameter.
template <class Options> class AdamOf final : public Optimizer {
 public:
  using Group = GroupOf<Options>;

  /// All parameters in one group. Throws ArgumentError on options out of range.
  explicit AdamOf(ParameterArena& arena, const Options& options = {});
  /// Group i uses StepState::learning_rate[first_slot + i].
  AdamOf(ParameterArena& arena, const std::vector<Group>& groups, int first_slot);

  void step(StepBuffer& step) override { step_by<kernels::AdamRule>(step, options_); }
  bool fuses_averages() const override { return true; }

 private:
  std::vector<kernels::AdamGroup> options_;  // by learning-rate slot
};

/// Adam, the formulas of torch.optim.Adam (without amsgrad):
///
///     g += lambda w
///     m  = beta1 m + (1 - beta1) g
///     v  = beta2 v + (1 - beta2) g^2
///     w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
///
/// where t counts this parameter's updates: a layer unfrozen late starts with t = 1. By default lambda is 0
/// for biases and norms (AdamOptions::decay); PyTorch decays them. Source: Kingma and Ba 2015,
/// arXiv:1412.6980, algorithm 1.
using Adam = AdamOf<AdamOptions>;

/// Adam with decoupled weight decay, the formulas of torch.optim.AdamW. By default biases and norms do not
/// decay (AdamWOptions::decay); in PyTorch they do.
/// Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
using AdamW = AdamOf<AdamWOptions>;

}  // namespace athanor
