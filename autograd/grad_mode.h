#pragma once

#include <utility>

namespace athanor {

class PackedModel;  // autograd/packed_model.h

namespace detail {

extern constinit thread_local bool grad_on, inference_on, recomputing_on, fusion_on;
extern constinit thread_local const PackedModel* packed_model;

/// Sets a variable until the end of the scope.
template <class T> class ScopedValue {
 public:
  ScopedValue(T& variable, T value) : variable_(variable), saved_(std::exchange(variable, value)) {}
  ~ScopedValue() { variable_ = saved_; }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& variable_;
  T saved_;
};
struct ScopedFlag : ScopedValue<bool> {
  using ScopedValue::ScopedValue;
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
 public:
  InferenceMode() : packed_(detail::packed_model, detail::packed_model) {}
  /// Also lets ops on the CPU use that model's packed weights.
  explicit InferenceMode(const PackedModel& packed) : packed_(detail::packed_model, &packed) {}

 private:
  detail::ScopedFlag marks_{detail::inference_on, true};
  detail::ScopedValue<const PackedModel*> packed_;
};

}  // namespace athanor
