#include "autograd/conv.h"

#include "autograd/detail/activation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/pad_same.h"
#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "kernels/norm.h"
#include "kernels/on_device.h"

namespace athanor {

namespace {

/// y, and its channels' sums if the backend finds them.
Tensor run_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                   const Tensor& y, bool wants_sums) {
  Tensor sums;
  on_device(x.device(), [&]<class Context>(Context& context) {
    constexpr bool kCpu = std::is_same_v<Context, CpuContext>;  // whose bits do not depend on fusion
    if (wants_sums && (kCpu || (is_half(x.dtype()) && fusion_enabled()))) {
      sums = Tensor::empty({2, y.dim(-1)}, {kernels::kSumsDType<Context>, x.device()});
      if (kernels::conv2d_forward_sums(context, params, x, w, y, sums)) return;
      sums = {};
    }
    kernels::conv2d_forward(context, params, x, w, bias, y);
  });
  return sums;
}

ConvAndSums convolve(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                     bool wants_sums) {
  if (detail::runs_separately(params.activation)) {
    Conv2dParams plain = params;
    plain.activation = Activation::none;
    return {detail::activate(params.activation, convolve(x, w, bias, plain, false).y), {}};
  }
  ATH_CHECK(x.defined() && w.defined(), "conv2d: x and w must be defined");
  ATH_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype() && x.device() == w.device(),
            "conv2d: x and w must have one floating dtype and device, but got {} on {} and {} on {}{}",
            x.dtype(), x.device().str(), w.dtype(), w.device().str(), cast_hint("x", x, "w", w));
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  if (params.same_padding) {
    Conv2dParams even = params;
    const Tensor padded = detail::pad_same(x, w.shape(), even);
    return convolve(padded, w, bias, even, wants_sums);
  }
  if (bias.defined()) check_dense("conv2d", "bias", bias, x.dtype(), {w.shape()[0]}, x.device());

  const Tensor input = dense(x), filter = dense(w), y = Tensor::empty(shape, x.options());
  const Tensor sums = run_forward(input, filter, bias, params, y, wants_sums && !bias.defined());
  const Tensor result = params.activation == Activation::none ? Tensor() : y;
  if (OpTrace* const trace = op_trace())
    trace->add("conv2d", {y}, {x, w, bias},
               {{"stride", {params.stride[0], params.stride[1]}},
                {"padding", {params.padding[0], params.padding[1]}},
                {"dilation", {params.dilation[0], params.dilation[1]}},
                {"groups", {params.groups}},
                {"activation", {params.activation}}});

  const Tensor recorded = record(
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
  return {recorded, sums};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params) {
  return convolve(x, w, bias, params, false).y;
}

ConvAndSums conv2d_with_sums(const Tensor& x, const Tensor& w, const Tensor& bias,
                             const Conv2dParams& params) {
  return convolve(x, w, bias, params, true);
}

}  // namespace athanor
