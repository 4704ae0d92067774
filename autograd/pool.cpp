#include "autograd/pool.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"

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
                     padding = params.padding[axis];
  ATH_CHECK(window > 0 && stride > 0, "{}: window and stride must be positive, but got {} and {}", op, window,
            stride);
  ATH_CHECK(padding >= 0 && 2 * padding <= window,
            "{}: padding must be in [0, window / 2], but got {} for window {}", op, padding, window);
  const std::int64_t room = inputs + 2 * padding - window;
  ATH_CHECK(room >= 0, "{}: window {} must fit into {} with padding {}, but does not", op, window, inputs,
            padding);
  std::int64_t outputs = (room + (params.ceil_mode ? stride - 1 : 0)) / stride + 1;
  if ((outputs - 1) * stride >= inputs + padding) --outputs;  // starts in the padding
  return {inputs, outputs, window, stride, padding, false};
}

PoolWindows windows_of(const char* op, const Tensor& x, const Pool2dParams& params) {
  check_input(op, x);
  return {axis_of(op, x, params, 0), axis_of(op, x, params, 1), params.count_padding};
}

Shape result_shape(const Tensor& x, const PoolWindows& windows) {
  return {x.shape()[0], windows.h.outputs, windows.w.outputs, x.shape()[3]};
}

Tensor average(const char* op, const Tensor& x, const PoolWindows& windows) {
  const Tensor from = dense(x), y = Tensor::empty(result_shape(x, windows), x.options());
  on_device(x.device(), [&](auto& context) { kernels::avg_pool_forward(context, windows, from, y); });
  return record(op, y, {x}, [shape = x.shape(), windows](const Tensor& seed, Grads& dx) {
    const Tensor dy = dense(seed);
    dx[0] = Tensor::empty(shape, dy.options());
    on_device(dy.device(), [&](auto& context) { kernels::avg_pool_backward(context, windows, dy, dx[0]); });
  });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dParams& params) {
  const PoolWindows windows = windows_of("max_pool2d", x, params);
  const Tensor from = dense(x), y = Tensor::empty(result_shape(x, windows), x.options());
  Tensor index;  // only where a backward pass may ask for it
  if (grad_enabled() && x.requires_grad()) {
    const bool small = windows.h.window * windows.w.window <= 256;
    index = Tensor::empty(y.shape(), {small ? DType::u8 : DType::i32, x.device()});
  }
  on_device(x.device(), [&](auto& context) { kernels::max_pool_forward(context, windows, from, y, index); });
  return record("max_pool2d", y, {x},
                [shape = x.shape(), windows, index = Saved(index)](const Tensor& seed, Grads& dx) {
                  const Tensor dy = dense(seed);
                  dx[0] = Tensor::empty(shape, dy.options());
                  on_device(dy.device(), [&](auto& context) {
                    kernels::max_pool_backward(context, windows, dy, index, dx[0]);
                  });
                });
}

Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params) {
  return average("avg_pool2d", x, windows_of("avg_pool2d", x, params));
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
