#include "autograd/pool.h"

#include "autograd/detail/dense.h"
#include "autograd/detail/pool_windows.h"
#include "autograd/node.h"
#include "kernels/index.h"
#include "kernels/on_device.h"
#include "kernels/pool_ops.h"

namespace athanor {
namespace {

using kernels::PoolAxis;
using kernels::PoolWindows;

void check_input(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()) && x.rank() == 4,
            "{}: x must be floating [N, H, W, C], but got {}", op,
            x.defined() ? fmt::format("{} {}", x.dtype(), x.shape()) : "an undefined tensor");
  ATH_CHECK(x.shape()[1] > 0 && x.shape()[2] > 0, "{}: H and W must be at least 1, but got {}", op,
            x.shape());
}

PoolAxis axis_of(const char* op, const Tensor& x, const Pool2dParams& params, int axis) {
  const std::int64_t inputs = x.shape()[1 + axis], window = params.window[axis], stride = params.stride[axis],
                     padding = params.padding[axis], dilation = params.dilation[axis];
  ATH_CHECK(window > 0 && stride > 0 && dilation > 0,
            "{}: window, stride and dilation must be positive, but got {}, {} and {}", op, window, stride,
            dilation);
  ATH_CHECK(padding >= 0 && 2 * padding <= window,
            "{}: padding must be in [0, window / 2], but got {} for window {}", op, padding, window);
  PoolAxis result{inputs, 0, window, stride, padding, false, dilation};
  const std::int64_t room = inputs + 2 * padding - result.extent();
  ATH_CHECK(room >= 0, "{}: window {} must fit into {} with padding {}, but does not", op, result.extent(),
            inputs, padding);
  result.outputs = (room + (params.ceil_mode ? stride - 1 : 0)) / stride + 1;
  if ((result.outputs - 1) * stride >= inputs + padding) --result.outputs;  // would start in the padding
  for (std::int64_t i = 0; i < result.outputs && result.start(i) < 0; ++i) {
    const std::int64_t first = (result.start(i) % dilation + dilation) % dilation;
    ATH_CHECK(first < inputs, "{}: every window must contain an element of x, but window {} has only padding",
              op, i);
  }
  return result;
}

}  // namespace

PoolWindows detail::pool_windows(const char* op, const Tensor& x, const Pool2dParams& params) {
  check_input(op, x);
  return {axis_of(op, x, params, 0), axis_of(op, x, params, 1), params.count_padding};
}

Shape detail::pooled_shape(const Tensor& x, const PoolWindows& windows) {
  return {x.shape()[0], windows.h.outputs, windows.w.outputs, x.shape()[3]};
}

namespace {

using detail::pool_windows;
using detail::pooled_shape;

// Records y, the pooled x, with its windows as attributes.
template <class Closure>
Tensor record_pool(const char* op, const Tensor& y, const Tensor& x, const PoolWindows& windows,
                   Closure&& closure) {
  const PoolAxis &h = windows.h, &w = windows.w;
  return record({op,
                 {{"window", {h.window, w.window}},
                  {"stride", {h.stride, w.stride}},
                  {"padding", {h.padding, w.padding}},
                  {"dilation", {h.dilation, w.dilation}},
                  {"count_padding", {windows.count_padding}}}},
                y, {x}, std::forward<Closure>(closure));
}

Tensor average(const char* op, const Tensor& x, const PoolWindows& windows) {
  const Tensor from = dense(x), y = Tensor::empty(pooled_shape(x, windows), x.options());
  on_device(x.device(), [&](auto& context) { kernels::avg_pool_forward(context, windows, from, y); });
  return record_pool(op, y, x, windows, [shape = x.shape(), windows](const Tensor& seed, Grads& dx) {
    const Tensor dy = dense(seed);
    dx[0] = Tensor::empty(shape, dy.options());
    on_device(dy.device(), [&](auto& context) { kernels::avg_pool_backward(context, windows, dy, dx[0]); });
  });
}

/// y, and the positions of the maxima if requested.
Tensor max_pool(const Tensor& x, const Pool2dParams& params, Tensor* positions) {
  const PoolWindows windows = pool_windows("max_pool2d", x, params);
  const Tensor from = dense(x), y = Tensor::empty(pooled_shape(x, windows), x.options());
  Tensor index;  // only if a backward pass or the caller may need it
  if (positions || (grad_enabled() && x.requires_grad())) {
    index = Tensor::empty(y.shape(), {kernels::small_windows(windows) ? DType::u8 : DType::i32, x.device()});
  }
  if (positions) *positions = Tensor::empty(y.shape(), {DType::i64, x.device()});
  on_device(x.device(), [&](auto& context) {
    kernels::max_pool_forward(context, windows, from, y, index);
    if (positions) kernels::max_pool_positions(context, windows, index, *positions);
  });
  return record_pool("max_pool2d", y, x, windows,
                     [shape = x.shape(), windows, index = Saved(index)](const Tensor& seed, Grads& dx) {
                       const Tensor dy = dense(seed);
                       dx[0] = Tensor::empty(shape, dy.options());
                       on_device(dy.device(), [&](auto& context) {
                         kernels::max_pool_backward(context, windows, dy, index, dx[0]);
                       });
                     });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dParams& params) {
  return max_pool(x, params, nullptr);
}

MaxPooled max_pool2d_with_indices(const Tensor& x, const Pool2dParams& params) {
  MaxPooled result;
  result.y = max_pool(x, params, &result.indices);
  return result;
}

Tensor max_unpool2d(const Tensor& x, const Tensor& indices, std::int64_t out_h, std::int64_t out_w) {
  check_input("max_unpool2d", x);
  ATH_CHECK(indices.defined() && indices.dtype() == DType::i64 && indices.shape() == x.shape() &&
                indices.device() == x.device(),
            "max_unpool2d: indices must be i64 {} on {}, but got {}", x.shape(), x.device().str(),
            indices.defined()
                ? fmt::format("{} {} on {}", indices.dtype(), indices.shape(), indices.device().str())
                : "an undefined tensor");
  ATH_CHECK(out_h > 0 && out_w > 0, "max_unpool2d: output sizes must be positive, but got {} x {}", out_h,
            out_w);
  const Tensor y = Tensor::zeros({x.dim(0), out_h, out_w, x.dim(3)}, x.options());
  const Shape images = {x.dim(0), out_h * out_w, x.dim(3)},
              pooled = {x.dim(0), x.dim(1) * x.dim(2), x.dim(3)};
  const auto as = [](const Tensor& t, const Shape& shape) {
    return t.detach().view_as_strided(shape, contiguous_strides(shape), 0);
  };
  const Tensor at = as(dense(indices), pooled);
  on_device(x.device(), [&](auto& context) {
    kernels::check_indices(context, "max_unpool2d", at, images[1]);
    kernels::scatter_add(context, as(dense(x), pooled), 1, at, as(y, images));
  });
  return record("max_unpool2d", y, {x},
                [at = Saved(at), shape = x.shape(), images, as](const Tensor& dy, Grads& dx) {
                  dx[0] = Tensor::empty(shape, dy.options());
                  on_device(dy.device(), [&](auto& context) {
                    kernels::gather(context, as(dense(dy), images), 1, at, as(dx[0], at.get().shape()));
                  });
                });
}

Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params) {
  ATH_CHECK(params.dilation[0] == 1 && params.dilation[1] == 1,
            "avg_pool2d: dilation must be 1, but got {} x {}", params.dilation[0], params.dilation[1]);
  return average("avg_pool2d", x, pool_windows("avg_pool2d", x, params));
}

Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t out_h, std::int64_t out_w) {
  check_input("adaptive_avg_pool2d", x);
  ATH_CHECK(out_h > 0 && out_w > 0, "adaptive_avg_pool2d: output sizes must be positive, but got {} x {}",
            out_h, out_w);
  const auto axis = [](std::int64_t inputs, std::int64_t outputs) {
    return PoolAxis{inputs, outputs, 1, 1, 0, true};
  };
  return average("adaptive_avg_pool2d", x, {axis(x.shape()[1], out_h), axis(x.shape()[2], out_w), true});
}

}  // namespace athanor
