#include "kernels/conv.h"

namespace athanor {

Shape conv2d_shape(const Shape& x, const Shape& w, const Conv2dParams& params) {
  ATH_CHECK(x.rank() == 4, "conv2d: x must be [N, H, W, C], but got {}", x);
  ATH_CHECK(w.rank() == 4, "conv2d: w must be [K, R, S, C / groups], but got {}", w);
  ATH_CHECK(params.groups >= 1 && x[3] % params.groups == 0 && w[0] % params.groups == 0,
            "conv2d: groups must divide C and K, but got {} for C {} and K {}", params.groups, x[3], w[0]);
  ATH_CHECK(w[3] == x[3] / params.groups, "conv2d: w must have {} input channels for x {}, but got {}",
            x[3] / params.groups, x, w);
  ATH_CHECK(w[1] >= 1 && w[2] >= 1, "conv2d: the kernel must be at least 1 x 1, but got {} x {}", w[1], w[2]);
  std::int64_t out[2];
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t stride = params.stride[axis], padding = params.padding[axis],
                       dilation = params.dilation[axis];
    ATH_CHECK(stride >= 1 && dilation >= 1 && padding >= 0,
              "conv2d: stride and dilation must be >= 1 and padding >= 0, but got {}, {} and {}", stride,
              dilation, padding);
    ATH_CHECK(!params.same_padding || (stride == 1 && padding == 0),
              "conv2d: same_padding must have stride 1 and padding 0, but got {} and {}", stride, padding);
    const std::int64_t extent = dilation * (w[1 + axis] - 1) + 1, padded = x[1 + axis] + 2 * padding;
    if (params.same_padding) {
      out[axis] = x[1 + axis];
      continue;
    }
    ATH_CHECK(padded >= extent, "conv2d: the {} of x with its padding must be at least {}, but got {}",
              axis == 0 ? "height" : "width", extent, padded);
    out[axis] = (padded - extent) / stride + 1;
  }
  return {x[0], out[0], out[1], w[0]};
}

}  // namespace athanor
