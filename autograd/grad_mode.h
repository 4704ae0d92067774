#pragma once

#include <utility>

namespace athanor {
namespace detail {

extern constinit thread_local bool grad_on, inference_on, recomputing_on, fusion_on;

/// Gives a flag another value until the end of the scope.
class ScopedFlag {
 public:
  ScopedFlag(bool& flag, bool value) : flag_(flag), saved_(std::exchange(flag, value)) {}
  ~ScopedFlag() { flag_ = saved_; }
  ScopedFlag(const ScopedFlag&) = delete;
  ScopedFlag& operator=(const ScopedFlag&) = delete;

 private:
  bool& flag_;
  bool saved_;
};

}  // namespace detail

/// Whether operations on this thread record nodes for a backward pass.
inline bool grad_enabled() {
  return detail::grad_on;
}
/// Whether this thread is inside an InferenceMode.
inline bool inference_mode() {
  return detail::inference_on;
}
/// Whether checkpoint() is computing a part of the model for the second time on this thread: what is updated
/// once per step (running statistics) stays as it is.
inline bool recomputing() {
  return detail::recomputing_on;
}

/// Whether conv2d(), linear() and batch_norm() compute activations and residual sums along the way.
inline bool fusion_enabled() {
  return detail::fusion_on;
}

/// While alive, activations and residual sums are ops of their own on this thread: to see what fusing saves.
class NoFusion : detail::ScopedFlag {
 public:
  NoFusion() : ScopedFlag(detail::fusion_on, false) {}
};

/// While alive, recomputing() holds.
class Recomputing : detail::ScopedFlag {
 public:
  Recomputing() : ScopedFlag(detail::recomputing_on, true) {}
};

/// While alive, nothing on this thread is recorded. Module modes (train, eval) are untouched. Nests.
class NoGrad : detail::ScopedFlag {
 public:
  NoGrad() : ScopedFlag(detail::grad_on, false) {}
};

/// Records again inside a NoGrad: recomputation in checkpoint() needs it.
class EnableGrad : detail::ScopedFlag {
 public:
  EnableGrad() : ScopedFlag(detail::grad_on, true) {}
};

/// Like NoGrad; besides, results are marked, and using one where a backward pass would have to save it is an
/// error naming both operations. Makes no node, no saved tensor.
class InferenceMode : NoGrad {
  detail::ScopedFlag marks_{detail::inference_on, true};
};

}  // namespace athanor
