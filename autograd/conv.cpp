#include "autograd/conv.h"

#include <optional>
#include <utility>

#include "autograd/detail/activation.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/zeros.h"
#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "autograd/packed_model.h"
#include "kernels/norm.h"
#include "kernels/on_device.h"
#include "kernels/packed_weights.h"

namespace athanor {

namespace {

/// Pads x for "same" output: kernels pad both sides equally, so an odd number of zeros needs one appended to
/// x. Sets params.padding to the rest.
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

/// Computes y. Returns the sums of its channels if they are wanted and the backend finds them.
Tensor run_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                   const Tensor& y, bool wants_sums) {
  Tensor sums;
  on_device(x.device(), [&]<class Context>(Context& context) {
    if (wants_sums && (!kernels::kSumsAreFusion<Context> || (is_half(x.dtype()) && fusion_enabled()))) {
      sums = Tensor::empty({2, y.dim(-1)}, {kernels::kSumsDType<Context>, x.device()});
      if (kernels::conv2d_forward_sums(context, params, x, w, y, sums)) return;
      sums = {};
    }
    kernels::conv2d_forward(context, params, x, w, bias, y);
  });
  return sums;
}

/// dx of input 0, shaped like `x`, and the first pass of the gradient of the norm that x may be the result
/// of, where this is the last part of that, and faster. Returns whether it has done so.
template <class Context>
bool backward_data_to_norm(Context& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                           const Grads& dx) {
  bool done = false;
  if constexpr (kernels::kHasPendingNorms<Context>) {
    const Grads::LastPart last = dx.last_part(0);
    const auto* const node = dynamic_cast<detail::NormNode*>(last.to);
    detail::NormGradientOffer* const offer = node ? node->offer : nullptr;
    if (!offer || !offer->stands() || (last.others.defined() && !last.others.is_contiguous())) return false;
    offer->with_norm([&](const kernels::PendingNorm& norm) {
      const bool shortcut = norm.residual.defined() || norm.other;
      if (!kernels::conv2d_may_follow_norm(context, params, norm.x, w, shortcut)) return;
      const Tensor g = empty_like(norm.x);
      const Tensor sums = Tensor::empty({norm.other ? 4 : 2, g.dim(-1)}, {DType::f32, g.device()});
      done = kernels::conv2d_backward_data_sums(context, params, dy, w, norm, last.others, g, sums);
      if (!done) return;
      offer->give(sums, g);
      dx.conclude(0, g);
    });
  }
  return done;
}
template <class Context>
void backward_data(Context& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                   const Tensor& x, Grads& dx) {
  if (backward_data_to_norm(context, params, dy, w, dx)) return;
  const auto [target, write] = dx.target(0, x);
  kernels::conv2d_backward_data(context, params, dy, w, target, write);
}

/// record() of a convolution.
template <class Closure>
Tensor record_conv(const Conv2dParams& params, const Tensor& y, std::initializer_list<Input> inputs,
                   Closure&& closure) {
  return record({"conv2d",
                 {{"stride", {params.stride[0], params.stride[1]}},
                  {"padding", {params.padding[0], params.padding[1]}},
                  {"dilation", {params.dilation[0], params.dilation[1]}},
                  {"groups", {params.groups}},
                  {"activation", {params.activation}}}},
                y, inputs, std::forward<Closure>(closure));
}

/// Records a convolution with operands in memory; `input` and `filter` are x and w, dense.
Tensor record_in_memory(const Conv2dParams& params, const Tensor& x, const Tensor& w, const Tensor& y,
                        const Tensor& bias, const Tensor& input, const Tensor& filter) {
  const Tensor result = params.activation == Activation::none ? Tensor() : y;
  return record_conv(
      params, y, {x, w, bias},
      [input = Saved(input), filter = Saved(filter), y = Saved::output(result), params](const Tensor& dy,
                                                                                        Grads& dx) {
        const Tensor dz = detail::activation_gradient(params.activation, y, dy);
        on_device(dz.device(), [&](auto& context) {
          if (dx.needs(0)) backward_data(context, params, dz, filter, input, dx);
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

/// With `sums`, writes those of the channels if they are found.
Tensor convolve(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                Tensor* sums) {
  if (detail::runs_separately(params.activation)) {
    Conv2dParams plain = params;
    plain.activation = Activation::none;
    return detail::activate(params.activation, convolve(x, w, bias, plain, nullptr));
  }
  ATH_CHECK(x.defined() && w.defined(), "conv2d: x and w must be defined");
  ATH_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype() && x.device() == w.device(),
            "conv2d: x and w must have one floating dtype and device, but got {} on {} and {} on {}{}",
            x.dtype(), x.device().str(), w.dtype(), w.device().str(), cast_hint("x", x, "w", w));
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  if (params.same_padding) {
    Conv2dParams even = params;
    const Tensor padded = pad_same(x, w.shape(), even);
    return convolve(padded, w, bias, even, sums);
  }
  if (bias.defined()) check_dense("conv2d", "bias", bias, x.dtype(), {w.shape()[0]}, x.device());

  const Tensor input = dense(x), filter = dense(w), y = Tensor::empty(shape, x.options());
  const Tensor found = run_forward(input, filter, bias, params, y, sums && !bias.defined());
  if (sums) *sums = found;
  return record_in_memory(params, x, w, y, bias, input, filter);
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params) {
  if (const auto* const packed = detail::packed_weights("conv2d", x, w, bias))
    return detail::conv2d_packed(x, *packed, params);
  return convolve(x, w, bias, params, nullptr);
}

Tensor detail::conv2d_with_sums(const Tensor& x, const Tensor& w, const Tensor& bias,
                                const Conv2dParams& params, Tensor& sums) {
  return convolve(x, w, bias, params, &sums);
}

namespace {

/// Records a convolution of a norm that has stayed pending.
Tensor record_behind_norm(const Conv2dParams& params, const Tensor& x, const Tensor& w, const Tensor& y,
                          const kernels::PendingNorm& norm) {
  return record_conv(
      params, y, {x, w, Tensor()},
      [norm = detail::SavedNorm(norm), filter = Saved(w), params](const Tensor& seed, Grads& dx) {
        const kernels::PendingNorm before = norm.get();
        const Tensor dy = dense(seed);
        on_device(dy.device(), [&]<class Context>(Context& context) {
          if constexpr (kernels::kHasPendingNorms<Context>) {
            if (dx.needs(0)) backward_data(context, params, dy, filter, before.x, dx);
            if (!dx.needs(1)) return;
            const auto [dw, write] = dx.target(1, filter);
            if (kernels::conv2d_backward_weights(context, params, before, dy, dw, write)) return;
            const Tensor input = empty_like(before.x);
            kernels::batch_norm_forward(context, Activation::relu, before.x, before.gamma, before.beta,
                                        before.stats, {}, input);
            kernels::conv2d_backward_weights(context, params, input, dy, dw, write, {}, Write::overwrite);
          }
        });
      });
}

}  // namespace

void detail::conv2d_of_pending(const DeferredNorm& norm, const ConvArguments& conv, Unnormalised& to) {
  const Tensor w = dense(conv.w), x = norm.unnormalised()->y;
  const Tensor y = Tensor::empty(conv2d_shape(x.shape(), w.shape(), conv.params), x.options());
  const Tensor sums = Tensor::empty({2, y.dim(-1)}, {DType::f32, y.device()});
  const Tensor stored = norm.residual().defined() ? Tensor::empty(x.shape(), x.options()) : Tensor();
  const NormBeforeConv before(norm);  // moves running statistics: what may throw comes first
  bool fused = false;
  {
    const LayerScope named(conv.layer);
    on_device(y.device(), [&]<class Context>(Context& context) {
      if constexpr (kernels::kHasPendingNorms<Context>)
        fused = kernels::conv2d_forward_sums(context, conv.params, before.operands(), w, stored, y, sums);
    });
  }
  Tensor normalised;
  {
    const LayerScope named(norm.unnormalised()->norm.layer);
    normalised = fused ? before.recorded(stored) : before.computed();
  }
  const bool in_memory = !fused || stored.defined();
  if (before.operands().other) norm.residual().set_value({});
  norm.set_value(in_memory ? normalised : Tensor());
  const LayerScope named(conv.layer);
  if (!fused) {
    to.y = convolve(normalised, conv.w, {}, conv.params, &to.sums);
    return;
  }
  to.y = in_memory ? record_in_memory(conv.params, normalised, conv.w, y, {}, normalised, w)
                   : record_behind_norm(conv.params, normalised, conv.w, y, before.operands());
  to.sums = sums;
}

Tensor detail::conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                             const Tensor& residual) {
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  Conv2dParams even = params;
  const Tensor input = dense(params.same_padding ? pad_same(x, w.shape(), even) : x);
  if (residual.defined()) check_dense("conv2d", "residual", residual, x.dtype(), shape, kCpu);
  const Tensor y = Tensor::empty(shape, x.options());
  kernels::conv2d_packed(cpu_context(), even, input, w, residual, y);
  return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
}

}  // namespace athanor
