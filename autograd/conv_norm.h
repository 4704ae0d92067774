#pragma once

#include <optional>

#include "autograd/norm.h"
#include "kernels/conv.h"
#include "kernels/pool.h"

// Convolution, batch norm, residual sum and activation as one op, which decides by itself what is fused, and
// so with a max pooling before or after the norm:
//
// - in training, the convolution may find the sums of its channels, which the norm then does not read again;
// - where the residual is normalised, too, both norms may be one op on a GPU;
// - between two convolutions, a norm with ReLU may be part of the second one on a GPU;
// - in training on a GPU, the tensor between norm and pooling is not stored, or summed as it is stored;
// - in InferenceMode(PackedModel), all may be one pass of the convolution.

namespace athanor {

/// What conv2d() takes beside x. Refers to tensors of the caller.
struct ConvArguments {
  const Tensor &w, &bias;
  const Conv2dParams& params;
  bool casts_weights = false;   ///< w is cast to x's dtype
  bool in_f32 = false;          ///< computes in f32 for x of a half type, and rounds the result to that type
  const char* layer = nullptr;  ///< whose ops these are for a profiler: see LayerScope
};

/// What batch_norm() takes beside x and a residual.
struct NormArguments {
  Tensor gamma, beta, running_mean, running_var;
  bool training;
  BatchNormParams params;
  bool in_f32 = false;  ///< as above; not with a residual
  const char* layer = nullptr;
};

/// The result of a convolution whose norm is still to come.
struct Unnormalised {
  Tensor y, sums;  ///< sums of its channels if they were found: [2, K] f32, or f64 on the CPU
  NormArguments norm;
};

/// A tensor, or activation(norm(conv(x)) + residual) whose norm is left to the first op that needs it: see
/// conv_norm_deferred(). Copies are of one tensor.
class DeferredNorm {
 public:
  /// No tensor.
  DeferredNorm() = default;
  DeferredNorm(const Tensor& value) : value_(value) {}  // NOLINT: a tensor is one
  DeferredNorm(const Unnormalised& norm, const DeferredNorm& residual);

  bool defined() const { return value_.defined() || state_; }
  /// The tensor, undefined if there is none. What is left to do is done now. Throws Error if a convolution
  /// has computed it without storing it.
  Tensor value() const;

  /// What is left to do. Null: nothing.
  const Unnormalised* unnormalised() const;
  /// What is to be added then.
  const DeferredNorm& residual() const;
  /// It is done: this is the tensor or, if undefined, none is stored.
  void set_value(const Tensor& value) const;

 private:
  struct State;
  Tensor value_;      // of a tensor
  Ref<State> state_;  // of a norm
};

/// Shared by the copies of a deferred norm, so that all know when it is done.
struct DeferredNorm::State final : RefCounted {
  std::optional<Unnormalised> norm;  // null: it is done
  DeferredNorm residual;
  Tensor value;  // once it is done; undefined if none is stored

  State(const Unnormalised& of, const DeferredNorm& added) : norm(of), residual(added) {}
};

/// activation(norm(conv(x)) + residual): batch_norm(conv2d(x), residual), with the activation of the norm's
/// params. Both record themselves.
Tensor conv_norm(const DeferredNorm& x, const ConvArguments& conv, const NormArguments& norm,
                 const DeferredNorm& residual = {});

/// conv_norm(), to be passed to another one as its x or its residual. In training the convolution runs now,
/// and the norm when it is needed. On a GPU it then takes fewer passes: as a residual it is added as it is
/// normalised; before another convolution, with ReLU in f16, that one normalises it as it loads it. Without a
/// residual of its own it is stored nowhere then, so only one op may need it. norm.layer must outlive the
/// result.
DeferredNorm conv_norm_deferred(const DeferredNorm& x, const ConvArguments& conv, const NormArguments& norm,
                                const DeferredNorm& residual = {});

/// max_pool2d(activation(norm(conv(x)))): max_pool2d() of conv_norm(), with the same bits. x [N, H, W, C];
/// returns [N, P, Q, K] of x's dtype. Throws what conv2d(), batch_norm() and max_pool2d() throw.
Tensor conv_norm_max_pool(const Tensor& x, const ConvArguments& conv, const NormArguments& norm,
                          const Pool2dParams& pool);
/// activation(norm(max_pool2d(x))): batch_norm() of max_pool2d(), with the same bits. x [N, H, W, C]; returns
/// [N, P, Q, C] of x's dtype. Throws what max_pool2d() and batch_norm() throw.
Tensor max_pool_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm);

/// relu(max_pool2d(conv(x))) with 2 x 2 windows. With packed weights and up to 8 input channels it may be one
/// pass, which may ignore a NaN in a window.
Tensor conv_pool_relu(const Tensor& x, const ConvArguments& conv);

}  // namespace athanor
