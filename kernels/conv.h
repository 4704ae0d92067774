#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/impl.h"

namespace athanor {

struct Conv2dParams {
  std::int64_t stride[2] = {1, 1};   ///< along H, W
  std::int64_t padding[2] = {0, 0};  ///< zeros on both sides of H, W
  bool same_padding = false;         ///< as many zeros as keep H and W; kernels get only `padding`
  std::int64_t dilation[2] = {1, 1};
  std::int64_t groups = 1;
  Activation activation = Activation::none;
  ConvImpl impl = ConvImpl::automatic;
};

/// The result's shape [N, P, Q, K] for x [N, H, W, C] and w [K, R, S, C / groups]. Throws ArgumentError on
/// shapes that do not fit.
Shape conv2d_shape(const Shape& x, const Shape& w, const Conv2dParams& params);

namespace kernels {

class PackedWeights;
struct PendingNorm;

/// y = activation(conv(x, w) + bias). x [N, H, W, C], w [K, R, S, C / groups], bias [K] or undefined,
/// y [N, P, Q, K]; all dense, one floating dtype, f32 accumulation. 2 N P Q K R S C / groups FLOPs.
ATH_KERNEL(void, conv2d_forward, const Conv2dParams& params, const Tensor& x, const Tensor& w,
           const Tensor& bias, Out y);

/// y = conv(x, w), and what batch norm needs to know of it (BatchNormTraining::sums): sums [2, K], of each
/// channel of y the sum of its values, as they are rounded, and that of their squares. Saves batch norm one
/// reading of y. Returns false where two passes are faster, or there is no code for it; y and sums then
/// have no content. There is code for `params` without groups and activation: on a GPU for f16 and bf16, C
/// and K multiples of 8, with f32 sums; on the CPU for f32 and half types where Winograd's algorithm is
/// used, with f64 sums.
ATH_KERNEL(bool, conv2d_forward_sums, const Conv2dParams& params, const Tensor& x, const Tensor& w, Out y,
           Out sums);

/// y = activation(conv(x, w) + bias + residual) with the weights and bias of `w`. x, residual (or undefined),
/// y of the dtype of `w` on the CPU, shapes as above. With oneDNN, a ReLU turns NaN into 0.
void conv2d_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x, const PackedWeights& w,
                   const Tensor& residual, Out y);

/// y = relu(the maximum of each 2 x 2 of conv(x, w) + bias), [N, P / 2, Q / 2, K], with the weights and bias
/// of `w`. x, y of the dtype of `w` on the CPU. May ignore a NaN among the four. Returns false without
/// writing y if the CPU has no code for it.
bool conv2d_pool_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x,
                        const PackedWeights& w, Out y);

/// dx (+)= dL/dx; every element is written.
ATH_KERNEL(void, conv2d_backward_data, const Conv2dParams& params, const Tensor& dy, const Tensor& w, Out dx,
           Write write_dx = Write::overwrite);

/// dw (+)= dL/dw, and dbias (+)= dL/dbias if defined. dw may be f32 for an x of a half type.
ATH_KERNEL(void, conv2d_backward_weights, const Conv2dParams& params, const Tensor& x, const Tensor& dy,
           Out dw, Write write_dw, Out dbias, Write write_dbias);

// Behind a norm whose result is to be computed along the way (PendingNorm, kernels/norm.h), with `params`
// without groups and activation, on a GPU for f16, C and K multiples of 8. Each returns false where separate
// passes are faster or there is no code for it; its results then have no content. ConvImpl::reference
// computes the norm's result into memory of its own.

/// Whether there may be code for it: to be asked before the norm's statistics are found.
ATH_KERNEL(bool, conv2d_may_follow_norm, const Conv2dParams& params, const Tensor& x, const Tensor& w,
           bool shortcut);
/// conv2d_forward_sums() of the norm's result. With a shortcut also writes that to `result`, and is for
/// filters of 1 x 1 and stride 1 alone; without, `result` is undefined.
ATH_KERNEL(bool, conv2d_forward_sums, const Conv2dParams& params, const PendingNorm& norm, const Tensor& w,
           Out result, Out y, Out sums);
/// dw (+)= dL/dw of the convolution of the norm's result, without a shortcut.
ATH_KERNEL(bool, conv2d_backward_weights, const Conv2dParams& params, const PendingNorm& norm,
           const Tensor& dy, Out dw, Write write_dw);
/// g = dL/d(what the norm's ReLU cuts), shaped like x, and sums [2, C] f32: of g, and of g (x - mean) / std,
/// which are dL/dbeta and dL/dgamma; with two norms [4, C], those of norm.other last. `others` is what other
/// readers of the norm's result contribute to its gradient, or undefined. With a shortcut, stride 1 alone.
ATH_KERNEL(bool, conv2d_backward_data_sums, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
           const PendingNorm& norm, const Tensor& others, Out g, Out sums);

}  // namespace kernels
}  // namespace athanor
