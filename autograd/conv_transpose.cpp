#include "autograd/conv_transpose.h"

#include <algorithm>

#include "autograd/detail/dense.h"
#include "autograd/detail/zeros.h"
#include "autograd/node.h"
#include "kernels/conv.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

/// The size of the result along H or W.
std::int64_t result_size(const Shape& x, const Shape& w, const ConvTranspose2dParams& params, int axis) {
  const std::int64_t stride = params.stride[axis], padding = params.padding[axis],
                     extra = params.output_padding[axis], dilation = params.dilation[axis];
  ATH_CHECK(stride >= 1 && dilation >= 1 && padding >= 0,
            "conv_transpose2d: stride and dilation must be >= 1 and padding >= 0, but got {}, {} and {}",
            stride, dilation, padding);
  ATH_CHECK(extra >= 0 && extra < std::max(stride, dilation),
            "conv_transpose2d: output_padding must be >= 0 and less than stride or dilation, but got {} for "
            "stride {} and dilation {}",
            extra, stride, dilation);
  const std::int64_t size =
      (x[1 + axis] - 1) * stride - 2 * padding + dilation * (w[1 + axis] - 1) + extra + 1;
  ATH_CHECK(size >= 1, "conv_transpose2d: the {} of the result must be at least 1, but is {}",
            axis == 0 ? "height" : "width", size);
  return size;
}

/// The convolution whose transpose this is.
Conv2dParams convolution(const ConvTranspose2dParams& params) {
  Conv2dParams conv;
  for (int axis = 0; axis < 2; ++axis) {
    conv.stride[axis] = params.stride[axis];
    conv.padding[axis] = params.padding[axis];
    conv.dilation[axis] = params.dilation[axis];
  }
  conv.groups = params.groups;
  conv.impl = params.impl;
  return conv;
}

}  // namespace

Shape conv_transpose2d_shape(const Shape& x, const Shape& w, const ConvTranspose2dParams& params) {
  ATH_CHECK(x.rank() == 4 && x[1] >= 1 && x[2] >= 1,
            "conv_transpose2d: x must be [N, H, W, C] with H and W at least 1, but got {}", x);
  ATH_CHECK(w.rank() == 4, "conv_transpose2d: w must be [C, R, S, K / groups], but got {}", w);
  ATH_CHECK(params.groups >= 1 && x[3] % params.groups == 0,
            "conv_transpose2d: groups must divide C, but got {} for C {}", params.groups, x[3]);
  ATH_CHECK(w[0] == x[3], "conv_transpose2d: w must have {} input channels for x {}, but got {}", x[3], x, w);
  ATH_CHECK(w[1] >= 1 && w[2] >= 1, "conv_transpose2d: the kernel must be at least 1 x 1, but got {} x {}",
            w[1], w[2]);
  return {x[0], result_size(x, w, params, 0), result_size(x, w, params, 1), w[3] * params.groups};
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose2dParams& params) {
  ATH_CHECK(x.defined() && w.defined(), "conv_transpose2d: x and w must be defined");
  check_alike("conv_transpose2d", "x and w must have one floating dtype and device", x, w, true, "x", "w");
  const Shape shape = conv_transpose2d_shape(x.shape(), w.shape(), params);
  if (bias.defined()) check_dense("conv_transpose2d", "bias", bias, x.dtype(), {shape[3]}, x.device());
  // With output padding of a whole stride or more, the convolution expects an image larger than x: pads x
  // with zeros.
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t more = params.output_padding[axis] / params.stride[axis];
    if (more == 0) continue;
    ConvTranspose2dParams rest = params;
    rest.output_padding[axis] -= more * params.stride[axis];
    return conv_transpose2d(detail::with_zeros_behind(x, 1 + axis, more), w, bias, rest);
  }

  const Conv2dParams conv = convolution(params);
  const Tensor input = dense(x), filter = dense(w), y = Tensor::empty(shape, x.options());
  on_device(x.device(), [&](auto& context) {
    kernels::conv2d_backward_data(context, conv, input, filter, y);
    if (bias.defined()) kernels::binary_forward<kernels::Add>(context, y, bias, y);
  });
  return record({"conv_transpose2d",
                 {{"stride", {params.stride[0], params.stride[1]}},
                  {"padding", {params.padding[0], params.padding[1]}},
                  {"output_padding", {params.output_padding[0], params.output_padding[1]}},
                  {"dilation", {params.dilation[0], params.dilation[1]}},
                  {"groups", {params.groups}}}},
                y, {x, w, bias},
                [input = Saved(input), filter = Saved(filter), conv](const Tensor& seed, Grads& dx) {
                  const Tensor dy = dense(seed);
                  on_device(dy.device(), [&](auto& context) {
                    if (dx.needs(0)) {
                      dx[0] = empty_like(input);
                      kernels::conv2d_forward(context, conv, dy, filter, {}, dx[0]);
                    }
                    if (dx.needs(1)) {
                      const auto [dw, write] = dx.target(1, filter);
                      kernels::conv2d_backward_weights(context, conv, dy, input, dw, write, {}, {});
                    }
                    if (dx.needs(2)) {
                      const auto [dbias, write] = dx.target(2, Tensor::empty({dy.dim(-1)}, dy.options()));
                      kernels::column_sums(context, dy, dbias, write);
                    }
                  });
                });
}

}  // namespace athanor
