#pragma once

#include <vector>

#include "kernels/update_ops.h"
#include "optim/optimizer.h"

namespace athanor {

struct SgdOptions {
  float momentum = 0;             ///< mu
  float dampening = 0;            ///< tau
  float weight_decay = 0;         ///< lambda; added to the gradient, so momentum includes it
  bool nesterov = false;          ///< needs momentum > 0 and dampening 0
  Decay decay = Decay::matrices;  ///< what weight_decay applies to; PyTorch: all
};

/// Stochastic gradient descent with momentum, weight decay and Nesterov's look-ahead, the formulas of
/// torch.optim.SGD:
///
///     g += lambda w
///     b  = mu b + (1 - tau) g         (at a parameter's first update b = g)
///     w -= lr (nesterov ? g + mu b : b)
///
/// By default lambda is 0 for biases and norms (SgdOptions::decay); PyTorch decays them. State: one f32 per
/// parameter, only if some group has momentum.
/// Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning".
class Sgd final : public Optimizer {
 public:
  using Group = GroupOf<SgdOptions>;

  /// All parameters in one group. Throws ArgumentError on options out of range.
  explicit Sgd(ParameterArena& arena, const SgdOptions& options = {});
  /// Group i uses StepState::learning_rate[first_slot + i].
  Sgd(ParameterArena& arena, const std::vector<Group>& groups, int first_slot);

  void step(StepBuffer& step) override;
  bool fuses_averages() const override { return true; }

 private:
  std::vector<kernels::SgdGroup> options_;  // by learning-rate slot
  bool any_momentum_ = false;
};

}  // namespace athanor
