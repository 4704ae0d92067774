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
  /// Gradients of gradients are not supported: true is refused with ArgumentError.
  bool create_graph = false;
  /// Only these leaves collect their gradient, and ops that lead to none of them do not run; nor is what they
  /// saved freed. Empty: all leaves collect. Throws ArgumentError where root depends on none of them.
  std::span<const Parameter> parameters = {};
};

/// Runs the tape from `root` back to its leaves and adds dL/dleaf to each leaf's gradient. `seed` is
/// dL/droot, shaped like root; it may be left out where root has one element (then it is 1). The graph is
/// freed on the way unless retained; running it again is an error. Runs on the calling thread, latest
/// operation first, with recording off.
void backward(const Tensor& root, const Tensor& seed = {}, BackwardOptions options = {});

/// dL/dinput for each input (leaf or intermediate), in their order; the gradients of leaves stay untouched.
/// An input the root does not depend on gets an undefined tensor.
std::vector<Tensor> grad(const Tensor& root, std::span<const Tensor> inputs, const Tensor& seed = {},
                         BackwardOptions options = {});

namespace detail {

/// The gradients of `states`, whichever root depends on, with the pass stopping there: for a pass inside a
/// pass, as checkpoint() runs one, which must not disturb what lies outside.
void backward_to(const Tensor& root, const Tensor& seed, std::span<AutogradState* const> states,
                 std::span<Tensor> gradients);

}  // namespace detail

/// Makes x a leaf that collects its gradient; returns x. No-op where it is one. Throws ArgumentError when x
/// is not floating, was computed from a tensor that needs a gradient, or comes from InferenceMode.
const Tensor& require_grad(const Tensor& x);
/// Stops collecting: forgets the leaf and its gradient.
void forget_grad(const Tensor& x);
/// A leaf's gradient so far; undefined where nothing was delivered since zero_grad().
Tensor grad_of(const Tensor& leaf);
/// The next gradient replaces what is there. Costs nothing: no memory is written.
void zero_grad(const Tensor& leaf);
/// The leaf state of x. Throws ArgumentError where x is none.
Leaf& leaf_of(const Tensor& x);
/// Calls `ready` each time a backward pass has made its last contribution to x. One hook per leaf.
void on_grad_ready(const Tensor& leaf, std::function<void()> ready);

/// While alive, every op forward and backward on this thread is checked for NaN and infinity, and the first
/// one to produce any throws Error naming op, direction and tensor. Slow: each check waits for the device.
class AnomalyMode : detail::ScopedFlag {
 public:
  AnomalyMode();
};

}  // namespace athanor
