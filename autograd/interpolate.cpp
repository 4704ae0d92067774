#include "autograd/interpolate.h"

#include <algorithm>
#include <cmath>

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

using kernels::InterpolateAxes;
using kernels::InterpolateAxis;

void check_images(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined() && x.rank() == 4, "{}: x must be [N, H, W, C], but got {}", op,
            x.defined() ? x.shape().str() : "an undefined tensor");
}

// Checks r before sizes are multiplied by it.
void check_factor(const char* op, std::int64_t r) {
  constexpr std::int64_t kMax = 1 << 15;
  ATH_CHECK(r >= 1 && r <= kMax, "{}: r must be from 1 to {}, but is {}", op, kMax, r);
}

void check_input(const Tensor& x, const InterpolateParams& params) {
  check_images("interpolate", x);
  ATH_CHECK(x.dim(1) > 0 && x.dim(2) > 0, "interpolate: H and W must be at least 1, but got {}", x.shape());
  const bool bilinear = params.mode == Interpolation::bilinear;
  ATH_CHECK(!bilinear || is_floating(x.dtype()), "interpolate: x must be floating for bilinear, but is {}",
            x.dtype());
  ATH_CHECK(bilinear || !params.align_corners,
            "interpolate: align_corners must be false for nearest, but is true");
  const auto given = [](const auto(&pair)[2]) { return pair[0] != 0 || pair[1] != 0; };
  ATH_CHECK(
      given(params.size) != given(params.scale),
      "interpolate: either size or scale must be given, not both, but got size {} x {} and scale {} x {}",
      params.size[0], params.size[1], params.scale[0], params.scale[1]);
}

InterpolateAxis axis_of(const Tensor& x, const InterpolateParams& params, int axis) {
  InterpolateAxis result;
  const std::int64_t inputs = x.dim(1 + axis);
  const double scale = params.scale[axis], in = static_cast<double>(inputs);
  const bool by_size = params.size[0] != 0 || params.size[1] != 0;
  constexpr double kMax = 1 << 24;  // positions are f32
  ATH_CHECK(by_size || (scale > 0 && in * scale >= 1 && in * scale <= kMax),
            "interpolate: scale must give a size from 1 to {}, but got {} times {}", kMax, inputs, scale);
  const std::int64_t outputs =
      by_size ? params.size[axis] : static_cast<std::int64_t>(std::floor(in * scale));
  ATH_CHECK(outputs > 0 && static_cast<double>(std::max(inputs, outputs)) <= kMax,
            "interpolate: sizes must be from 1 to {}, but got {} to {}", kMax, inputs, outputs);
  result.inputs = inputs;
  result.outputs = outputs;
  result.align_corners = params.align_corners;
  const double out = static_cast<double>(outputs);
  if (params.align_corners) {
    result.scale = outputs > 1 ? (in - 1) / (out - 1) : 0;
  } else {
    result.scale = by_size ? in / out : 1 / scale;
  }
  return result;
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateParams& params) {
  check_input(x, params);
  const InterpolateAxes axes{axis_of(x, params, 0), axis_of(x, params, 1)};
  const Interpolation mode = params.mode;
  const Tensor from = dense(x);
  const Tensor y = Tensor::empty({x.dim(0), axes.h.outputs, axes.w.outputs, x.dim(3)}, x.options());
  on_device(x.device(), [&](auto& context) { kernels::interpolate_forward(context, mode, axes, from, y); });
  return record({"interpolate",
                 {{"mode", {mode}},
                  {"scale", {axes.h.scale, axes.w.scale}},
                  {"align_corners", {params.align_corners}}}},
                y, {x}, [shape = x.shape(), axes, mode](const Tensor& seed, Grads& dx) {
                  const Tensor dy = dense(seed);
                  dx[0] = Tensor::empty(shape, dy.options());
                  on_device(dy.device(), [&](auto& context) {
                    kernels::interpolate_backward(context, mode, axes, dy, dx[0]);
                  });
                });
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t r) {
  check_images("pixel_shuffle", x);
  check_factor("pixel_shuffle", r);
  ATH_CHECK(x.dim(3) % (r * r) == 0, "pixel_shuffle: r^2 must divide the channels, but r is {} for {}", r,
            x.shape());
  const std::int64_t n = x.dim(0), h = x.dim(1), w = x.dim(2), c = x.dim(3) / (r * r);
  return reshape(permute(reshape(x, {n, h, w, c, r, r}), {0, 1, 4, 2, 5, 3}), {n, h * r, w * r, c});
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t r) {
  check_images("pixel_unshuffle", x);
  check_factor("pixel_unshuffle", r);
  ATH_CHECK(x.dim(1) % r == 0 && x.dim(2) % r == 0,
            "pixel_unshuffle: r must divide H and W, but is {} for {}", r, x.shape());
  const std::int64_t n = x.dim(0), h = x.dim(1) / r, w = x.dim(2) / r, c = x.dim(3);
  return reshape(permute(reshape(x, {n, h, r, w, r, c}), {0, 1, 3, 5, 2, 4}), {n, h, w, c * r * r});
}

}  // namespace athanor
