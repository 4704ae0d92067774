#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/node.h"
#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace athanor {

struct BackwardOptions {
  /// Keeps the graph and its saved tensors for another pass.
  bool retain_graph = false;
  /// Only these leaves collect gradients; ops that lead to none of them do not run and keep their saved
  /// tensors. Empty: all leaves collect. Throws ArgumentError if root depends on none of them.
  std::span<const Parameter> parameters = {};
};

/// Runs the tape from `root` back to its leaves and adds dL/dleaf to each leaf's gradient. `seed` is
/// dL/droot, of root's shape; a root of one element may omit it (then it is 1). The pass frees the graph
/// unless retained; running it again is an error. Runs on the calling thread, latest operation first, without
/// recording.
void backward(const Tensor& root, const Tensor& seed = {}, BackwardOptions options = {});

/// dL/dinput for each input (leaf or intermediate), in order; the leaves' own gradients are unchanged. An
/// input on which root does not depend gets an undefined tensor.
std::vector<Tensor> grad(const Tensor& root, std::span<const Tensor> inputs, const Tensor& seed = {},
                         BackwardOptions options = {});

/// Calls `visit` once for each leaf that root, computed or itself a leaf, depends on.
void for_each_leaf(const Tensor& root, const std::function<void(const Leaf&)>& visit);

namespace detail {

/// The gradients of those `states` on which root depends; the pass stops there. For a pass inside a pass, as
/// in checkpoint(), which must not affect the outer one.
void backward_to(const Tensor& root, const Tensor& seed, std::span<AutogradState* const> states,
                 std::span<Tensor> gradients);

}  // namespace detail

/// Makes x a leaf that collects its gradient; returns x. No-op on a leaf. Throws ArgumentError if x is not
/// floating, was computed from a tensor that needs a gradient, or comes from InferenceMode.
const Tensor& require_grad(const Tensor& x);
/// Stops collecting: drops the leaf and its gradient.
void forget_grad(const Tensor& x);
/// A leaf's accumulated gradient; undefined if no pass has added to it since zero_grad().
Tensor grad_of(const Tensor& leaf);
/// The next gradient overwrites the current one. Writes no memory.
void zero_grad(const Tensor& leaf);
/// The leaf state of x. Throws ArgumentError if x is not a leaf.
Leaf& leaf_of(const Tensor& x);
/// Calls `ready` after the last contribution of each backward pass to `leaf`. One hook per leaf.
void on_grad_ready(const Tensor& leaf, std::function<void()> ready);

/// While alive, checks the result of every op on this thread, forward and backward, for NaN and infinity.
/// Throws Error naming op, direction and tensor. Slow: each check waits for the device.
class AnomalyMode final : OpObserver {
  void recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) override;
  void contributed(const char* op, int input, const Tensor& dx) override;
  bool needs_each_gradient() const override { return true; }

  ObserveScope scope_{*this};
};

}  // namespace athanor
