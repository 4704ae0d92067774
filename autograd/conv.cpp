#include "autograd/conv.h"

#include "autograd/detail/activation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/zeros.h"
#include "autograd/node.h"

namespace athanor {
namespace {

/// What kernels do not pad for filters of that shape, the larger half of an odd number of zeros, is made part
/// of x; `params` then say the rest.
Tensor pad_same(const Tensor& x, const Shape& w, Conv2dParams& params) {
  params.same_padding = false;
  Tensor padded = x;
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t zeros = params.dilation[axis] * (w[1 + axis] - 1);
    params.padding[axis] = zeros / 2;
    if (zeros % 2 != 0) padded = detail::with_zeros_behind(padded, 1 + axis, 1);
  }
  return padded;
}

}  // namespace

Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual) {
  ATH_CHECK(x.defined() && x.dtype() == DType::f32 && x.device().is_cpu(),
            "conv2d: for packed weights, x must be f32 on the CPU, but is {}",
            x.defined() ? fmt::format("{} on {}", x.dtype(), x.device().str()) : "undefined");
  ATH_CHECK(w.are_current(),
            "conv2d: packed weights must stay as they are, but were written to; call pack_weights() again");
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  Conv2dParams even = params;
  const Tensor input = dense(params.same_padding ? pad_same(x, w.shape(), even) : x);
  if (residual.defined()) check_dense("conv2d", "residual", residual, DType::f32, shape, kCpu);
  const Tensor y = Tensor::empty(shape);
  kernels::conv2d_packed(cpu_context(), even, input, w, residual, y);
  return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params) {
  if (detail::needs_its_input(params.activation)) {
    Conv2dParams plain = params;
    plain.activation = Activation::none;
    return detail::activate(params.activation, conv2d(x, w, bias, plain));
  }
  ATH_CHECK(x.defined() && w.defined(), "conv2d: x and w must be defined");
  ATH_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype() && x.device() == w.device(),
            "conv2d: x and w must have one floating dtype and device, but got {} on {} and {} on {}{}",
            x.dtype(), x.device().str(), w.dtype(), w.device().str(), how_to_match("x", x, "w", w));
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  if (params.same_padding) {
    Conv2dParams even = params;
    const Tensor padded = pad_same(x, w.shape(), even);
    return conv2d(padded, w, bias, even);
  }
  if (bias.defined()) check_dense("conv2d", "bias", bias, x.dtype(), {w.shape()[0]}, x.device());

  const Tensor input = dense(x), filter = dense(w), y = Tensor::empty(shape, x.options());
  on_device(x.device(),
            [&](auto& context) { kernels::conv2d_forward(context, params, input, filter, bias, y); });
  const Tensor result = params.activation == Activation::none ? Tensor() : y;

  return record(
      "conv2d", y, {x, w, bias},
      [input = Saved(input), filter = Saved(filter), y = Saved::output(result), params](const Tensor& dy,
                                                                                        Grads& dx) {
        const Tensor dz = detail::activation_gradient(params.activation, y, dy);
        on_device(dz.device(), [&](auto& context) {
          if (dx.wants(0)) {
            const auto [target, write] = dx.target(0, input);
            // The kernel writes every element; a leaf's slice that already holds something is added to.
            const Tensor gradient = write == Write::overwrite ? target : empty_like(target);
            kernels::conv2d_backward_data(context, params, dz, filter, gradient);
            if (write == Write::accumulate) kernels::add_into(context, gradient, target);
          }
          Tensor dw, dbias;
          Write write_dw{}, write_dbias{};
          if (dx.wants(1)) {
            const auto [target, write] = dx.target(1, filter);
            dw = target, write_dw = write;
          }
          if (dx.wants(2)) {
            const auto [target, write] = dx.target(2, Tensor::empty({filter.get().shape()[0]}, dz.options()));
            dbias = target, write_dbias = write;
          }
          if (dw.defined() || dbias.defined())
            kernels::conv2d_backward_weights(context, params, input, dz, dw, write_dw, dbias, write_dbias);
        });
      });
}

}  // namespace athanor
