#pragma once

#include <cstdint>

#include "kernels/impl.h"
#include "tensor/tensor.h"

namespace athanor {

struct ConvTranspose2dParams {
  std::int64_t stride[2] = {1, 1};          ///< along H, W
  std::int64_t padding[2] = {0, 0};         ///< rows and columns removed from both sides of the result
  std::int64_t output_padding[2] = {0, 0};  ///< extra rows and columns at its end
  std::int64_t dilation[2] = {1, 1};
  std::int64_t groups = 1;
  ConvImpl impl = ConvImpl::automatic;
};

/// The result's shape [N, P, Q, K] for x [N, H, W, C] and w [C, R, S, K / groups]. Throws ArgumentError on
/// shapes that do not fit.
Shape conv_transpose2d_shape(const Shape& x, const Shape& w, const ConvTranspose2dParams& params);

/// Transposed 2-d convolution: as a matrix, the transpose of the conv2d() from [N, P, Q, K] to [N, H, W, C]
/// with the same w, stride, padding and dilation. It runs that convolution's three passes.
/// x [N, H, W, C], w [C, R, S, K / groups] (PyTorch: [C, K / groups, R, S]), bias [K] or undefined ->
/// [N, P, Q, K], with P = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1. A strided
/// convolution maps several input sizes to one output size; output_padding, below max(stride, dilation),
/// picks one. One floating dtype; accumulates in f32 (f64 for f64). A half type is rounded once before bias
/// is added.
/// NaN and infinity spread as in conv2d(). Throws ArgumentError on rank, shape, dtype or device.
/// Source: Dumoulin and Visin 2016, arXiv:1603.07285, section 4.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2dParams& params = {});

}  // namespace athanor
