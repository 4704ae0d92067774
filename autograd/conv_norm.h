#pragma once

#include <optional>

#include "autograd/norm.h"
#include "kernels/conv.h"

// Convolution, batch norm, residual sum and activation as one op, which decides by itself what is fused:
//
// - in training, the convolution may find the sums of its channels, which the norm then does not read again;
// - where the residual is normalised, too, both norms may be one op on a GPU;
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

/// What batch_norm() takes beside x and a residual. Refers to tensors of the caller.
struct NormArguments {
  const Tensor &gamma, &beta, &running_mean, &running_var;
  bool training;
  const BatchNormParams& params;
  bool in_f32 = false;  ///< as above; not with a residual
  const char* layer = nullptr;
};

/// The result of a convolution whose norm is still to come.
struct Unnormalised {
  Tensor y, sums;  ///< sums of its channels if they were found: [2, K] f32, or f64 on the CPU
  NormArguments norm;
};

/// What conv_norm() adds: a tensor, or what conv_norm_residual() returns.
struct Residual {
  Residual() = default;
  Residual(const Tensor& sum) : x(sum) {}  // NOLINT: a tensor is one

  Tensor x;
  std::optional<Unnormalised> unnormalised;  ///< added instead of x, normalised
};

/// activation(norm(conv(x)) + residual): batch_norm(conv2d(x), residual), with the activation of the norm's
/// params. Both record themselves.
Tensor conv_norm(const Tensor& x, const ConvArguments& conv, const NormArguments& norm,
                 const Residual& residual = {});

/// norm(conv(x)) as a residual. In training the convolution runs now and the norm with the sum, in fewer
/// passes on a GPU. What `norm` refers to must outlive the residual.
Residual conv_norm_residual(const Tensor& x, const ConvArguments& conv, const NormArguments& norm);

/// relu(max_pool2d(conv(x))) with 2 x 2 windows. With packed weights and up to 8 input channels it may be one
/// pass, which may ignore a NaN in a window.
Tensor conv_pool_relu(const Tensor& x, const ConvArguments& conv);

}  // namespace athanor
