#pragma once

#include <utility>

namespace athanor {
namespace detail {

extern constinit thread_local bool grad_on, inference_on, recomputing_on, fusion_on;

/// Sets a flag until the end of the scope.
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
/// Whether checkpoint() is recomputing on this thread. Updates made once per step (running statistics) must
/// then be skipped.
inline bool recomputing() {
  return detail::recomputing_on;
}

/// Whether conv2d(), linear() and batch_norm() fuse activations and residual sums.
inline bool fusion_enabled() {
  return detail::fusion_on;
}

/// While alive, activations and residual sums run as separate ops on this thread: to measure fusion.
class NoFusion : detail::ScopedFlag {
 public:
  NoFusion() : ScopedFlag(detail::fusion_on, false) {}
};

/// While alive, recomputing() is true.
class Recomputing : detail::ScopedFlag {
 public:
  Recomputing() : ScopedFlag(detail::recomputing_on, true) {}
};

/// While alive, nothing on this thread is recorded. Module modes (train, eval) are untouched. Nests.
class NoGrad : detail::ScopedFlag {
 public:
  NoGrad() : ScopedFlag(detail::grad_on, false) {}
};

/// Turns recording on again inside a NoGrad, as recomputation in checkpoint() needs.
class EnableGrad : detail::ScopedFlag {
 public:
  EnableGrad() : ScopedFlag(detail::grad_on, true) {}
};

/// Like NoGrad, and marks results: saving one for a backward pass is an error that names both operations.
/// Creates no nodes and saves no tensors.
class InferenceMode : NoGrad {
  detail::ScopedFlag marks_{detail::inference_on, true};
};

}  // namespace athanor
