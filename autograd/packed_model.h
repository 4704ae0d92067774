#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace athanor {

namespace kernels {
class PackedWeights;
}
struct NormArguments;

/// The weights of a network in the layouts of the CPU's kernels, with batch norms multiplied in, for
/// inference:
///
///     const PackedModel packed;
///     network.eval();
///     const InferenceMode inference(packed);
///     network(images);  // packs the weights
///     network(images);  // uses them
///
/// In such a scope conv2d(), conv_norm(), conv_pool_relu() and linear() use packed weights if x and w are on
/// the CPU and both f32, or both bf16. The first call that reads a weight packs it; any number of threads may
/// share a PackedModel. Results differ by rounding only, and a ReLU may turn NaN into 0. Weights, biases and
/// norms must not change as long as it lives: one that was written to is an ArgumentError. It keeps all that
/// it has packed, but does not pack what ops of the same scope have computed.
class PackedModel {
 public:
  PackedModel();
  ~PackedModel();
  PackedModel(const PackedModel&) = delete;
  PackedModel& operator=(const PackedModel&) = delete;

  /// Of a weight or bias that is rounded to bf16, the f32 values from before. What is packed is made of
  /// these, so that it is rounded once, after a norm is folded in. To be called before the first scope.
  void keep_unrounded(const Tensor& rounded, const Tensor& values);

  /// w [K, ...], with bias and norm (null: none) in evaluation folded in; all dense on the CPU, w and bias of
  /// one dtype, f32 or bf16, the norm f32. `op` begins the message if w has changed.
  const kernels::PackedWeights& of(const char* op, const Tensor& w, const Tensor& bias,
                                   const NormArguments* norm) const;

 private:
  struct Lists;
  std::unique_ptr<Lists> lists_;
};

namespace detail {

/// The packed weights for `op` on x; null if this call computes without.
const kernels::PackedWeights* packed_weights(const char* op, const Tensor& x, const Tensor& w,
                                             const Tensor& bias, const NormArguments* norm = nullptr);

}  // namespace detail

}  // namespace athanor
