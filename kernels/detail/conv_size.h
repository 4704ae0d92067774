#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace athanor {

/// Sizes of a convolution.
struct ConvSize {
  std::int64_t n, h, w, c;  ///< input
  std::int64_t k, r, s;     ///< filter
  std::int64_t p, q;        ///< output rows and columns
  std::int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  std::int64_t groups;

  ConvSize(const Shape& x, const Shape& filter, const Shape& y, const Conv2dParams& params)
      : n(x[0]),
        h(x[1]),
        w(x[2]),
        c(x[3]),
        k(filter[0]),
        r(filter[1]),
        s(filter[2]),
        p(y[1]),
        q(y[2]),
        stride_h(params.stride[0]),
        stride_w(params.stride[1]),
        padding_h(params.padding[0]),
        padding_w(params.padding[1]),
        dilation_h(params.dilation[0]),
        dilation_w(params.dilation[1]),
        groups(params.groups) {}

  std::int64_t group_c() const { return c / groups; }
  std::int64_t group_k() const { return k / groups; }
  bool has_unit_stride() const { return stride_h == 1 && stride_w == 1; }
  /// A 1 x 1 filter at every pixel is a plain product, whose pixels need no finding.
  bool is_pointwise() const {
    return r == 1 && s == 1 && has_unit_stride() && padding_h == 0 && padding_w == 0 && groups == 1;
  }
  /// Multiply-adds.
  std::int64_t work() const { return n * p * q * k * r * s * group_c(); }

  /// The input row (column) under output row (column) `out` and filter row (column) `tap`.
  std::int64_t row(std::int64_t out, std::int64_t tap) const {
    return out * stride_h - padding_h + tap * dilation_h;
  }
  std::int64_t column(std::int64_t out, std::int64_t tap) const {
    return out * stride_w - padding_w + tap * dilation_w;
  }
};

/// Whether conv2d_forward_sums() may have code for it.
inline bool may_sum_channels(const Conv2dParams& params, const Tensor& x, const Tensor& y) {
  return is_half(x.dtype()) && x.numel() > 0 && y.numel() > 0 && x.dim(-1) % 8 == 0 && y.dim(-1) % 8 == 0 &&
         params.groups == 1 && params.activation == Activation::none;
}

/// Whether a convolution may have code that computes the norm before it (PendingNorm).
inline bool may_follow_norm(const Conv2dParams& params, const Tensor& x, const Tensor& w) {
  return x.dtype() == DType::f16 && x.numel() > 0 && w.numel() > 0 && x.dim(-1) % 8 == 0 &&
         w.dim(0) % 8 == 0 && params.groups == 1 && params.activation == Activation::none &&
         !params.same_padding;
}

}  // namespace athanor
