#include "autograd/conv.h"

#include "autograd/detail/activation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/pad_same.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "kernels/on_device.h"

namespace athanor {

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params) {
  if (detail::runs_separately(params.activation)) {
    Conv2dParams plain = params;
    plain.activation = Activation::none;
    return detail::activate(params.activation, conv2d(x, w, bias, plain));
  }
  ATH_CHECK(x.defined() && w.defined(), "conv2d: x and w must be defined");
  ATH_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype() && x.device() == w.device(),
            "conv2d: x and w must have one floating dtype and device, but got {} on {} and {} on {}{}",
            x.dtype(), x.device().str(), w.dtype(), w.device().str(), cast_hint("x", x, "w", w));
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  if (params.same_padding) {
    Conv2dParams even = params;
    const Tensor padded = detail::pad_same(x, w.shape(), even);
    return conv2d(padded, w, bias, even);
  }
  if (bias.defined()) check_dense("conv2d", "bias", bias, x.dtype(), {w.shape()[0]}, x.device());

  const Tensor input = dense(x), filter = dense(w), y = Tensor::empty(shape, x.options());
  on_device(x.device(),
            [&](auto& context) { kernels::conv2d_forward(context, params, input, filter, bias, y); });
  const Tensor result = params.activation == Activation::none ? Tensor() : y;
  if (OpTrace* const trace = op_trace())
    trace->add("conv2d", {y}, {x, w, bias},
               {{"stride", {params.stride[0], params.stride[1]}},
                {"padding", {params.padding[0], params.padding[1]}},
                {"dilation", {params.dilation[0], params.dilation[1]}},
                {"groups", {params.groups}},
                {"activation", {params.activation}}});

  return record(
      "conv2d", y, {x, w, bias},
      [input = Saved(input), filter = Saved(filter), y = Saved::output(result), params](const Tensor& dy,
                                                                                        Grads& dx) {
        const Tensor dz = detail::activation_gradient(params.activation, y, dy);
        on_device(dz.device(), [&](auto& context) {
          if (dx.needs(0)) {
            const auto [target, write] = dx.target(0, input);
            kernels::conv2d_backward_data(context, params, dz, filter, target, write);
          }
          Tensor dw, dbias;
          Write write_dw{}, write_dbias{};
          if (dx.needs(1)) {
            const auto [target, write] = dx.target(1, filter);
            dw = target, write_dw = write;
          }
          if (dx.needs(2)) {
            const auto [target, write] = dx.target(2, Tensor::empty({filter.get().shape()[0]}, dz.options()));
            dbias = target, write_dbias = write;
          }
          if (dw.defined() || dbias.defined())
            kernels::conv2d_backward_weights(context, params, input, dz, dw, write_dw, dbias, write_dbias);
        });
      });
}

}  // namespace athanor
