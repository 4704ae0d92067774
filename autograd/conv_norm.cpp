#include "autograd/conv_norm.h"

#include <optional>

#include "autograd/conv.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/detail/dense.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/op_observer.h"
#include "autograd/packed_model.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "kernels/cpu/context.h"
#include "kernels/packed_weights.h"

namespace athanor {
namespace {

/// f(x), or in f32 if asked for and x is of a half type.
template <class F> Tensor maybe_in_f32(bool in_f32, const Tensor& x, const F& f) {
  return in_f32 && is_half(x.dtype()) ? cast(f(cast(x, DType::f32)), x.dtype()) : f(x);
}

/// conv2d() as the layer computes it. With `sums`, writes them if they are found.
Tensor run_conv(const Tensor& x, const ConvArguments& conv, Tensor* sums = nullptr) {
  const LayerScope named(conv.layer);
  return maybe_in_f32(conv.in_f32, x, [&](const Tensor& in) {
    const Tensor w = conv.casts_weights && conv.w.dtype() != in.dtype() ? cast(conv.w, in.dtype()) : conv.w;
    return sums && !conv.in_f32 ? detail::conv2d_with_sums(in, w, conv.bias, conv.params, *sums)
                                : conv2d(in, w, conv.bias, conv.params);
  });
}

Tensor run_norm(const Unnormalised& x, const Tensor& residual) {
  const LayerScope named(x.norm.layer);
  if (residual.defined() || !x.norm.in_f32) return detail::batch_norm(x, residual);
  return maybe_in_f32(true, x.y, [&](const Tensor& in) {
    return detail::batch_norm(Unnormalised{in, {}, x.norm}, {});
  });
}

/// activation(norm(x) + residual)
Tensor run_norm(const Unnormalised& x, const DeferredNorm& residual) {
  const Unnormalised* const other = residual.unnormalised();
  if (!other || residual.residual().defined() || !detail::fuses_batch_norm_pair(x, *other))
    return run_norm(x, residual.value());
  const LayerScope named(x.norm.layer);
  const Tensor y = detail::batch_norm_pair(x, *other);
  residual.set_value({});
  return y;
}

Unnormalised before_norm(const DeferredNorm& x, const ConvArguments& conv, const NormArguments& norm) {
  Unnormalised result{{}, {}, norm};
  const bool reads_sums = norm.training && !norm.params.joined && !norm.in_f32;
  if (x.unnormalised() && reads_sums && detail::may_stay_pending(x, conv)) {
    detail::conv2d_of_pending(x, conv, result);
  } else {
    result.y = run_conv(x.value(), conv, reads_sums ? &result.sums : nullptr);
  }
  return result;
}

/// The weights with the norm folded in, or null.
const kernels::PackedWeights* folded(const Tensor& x, const ConvArguments& conv, const NormArguments& norm) {
  if (conv.params.activation != Activation::none) return nullptr;
  return detail::packed_weights("conv2d", x, conv.w, conv.bias, &norm);
}

}  // namespace

DeferredNorm::DeferredNorm(const Unnormalised& norm, const DeferredNorm& residual)
    : state_(make_ref<State>(norm, residual)) {}

Tensor DeferredNorm::value() const {
  if (!state_) return value_;
  if (state_->norm) set_value(run_norm(*state_->norm, state_->residual));
  ATH_CHECK(state_->value.defined(),
            "conv_norm: a deferred norm must be handed to one op, but another one has computed it already");
  return state_->value;
}

const Unnormalised* DeferredNorm::unnormalised() const {
  return state_ && state_->norm ? &*state_->norm : nullptr;
}
const DeferredNorm& DeferredNorm::residual() const {
  return state_->residual;
}
void DeferredNorm::set_value(const Tensor& value) const {
  state_->value = value;
  state_->norm.reset();
  state_->residual = {};
}

Tensor conv_norm(const DeferredNorm& x, const ConvArguments& conv, const NormArguments& norm,
                 const DeferredNorm& residual) {
  if (!x.unnormalised() && !residual.unnormalised()) {
    if (const kernels::PackedWeights* const weights = folded(x.value(), conv, norm)) {
      Conv2dParams params = conv.params;
      params.activation = norm.params.activation;
      return detail::conv2d_packed(x.value(), *weights, params, residual.value());
    }
  }
  const Unnormalised y = before_norm(x, conv, norm);
  return run_norm(y, residual);
}

DeferredNorm conv_norm_deferred(const DeferredNorm& x, const ConvArguments& conv, const NormArguments& norm,
                                const DeferredNorm& residual) {
  if (!norm.training) return conv_norm(x, conv, norm, residual);
  return {before_norm(x, conv, norm), residual};
}

Tensor conv_norm_max_pool(const Tensor& x, const ConvArguments& conv, const NormArguments& norm,
                          const Pool2dParams& pool) {
  if (!norm.training) return max_pool2d(conv_norm(x, conv, norm), pool);
  const Unnormalised y = before_norm(x, conv, norm);
  if (!detail::fuses_batch_norm_max_pool(y, pool)) return max_pool2d(run_norm(y, Tensor()), pool);
  const LayerScope named(norm.layer);
  return detail::batch_norm_max_pool(y, pool);
}

Tensor max_pool_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm) {
  if (!detail::fuses_max_pool_batch_norm(x, pool, norm))
    return run_norm({max_pool2d(x, pool), {}, norm}, Tensor());
  const LayerScope named(norm.layer);
  return detail::max_pool_batch_norm(x, pool, norm);
}

Tensor conv_pool_relu(const Tensor& x, const ConvArguments& conv) {
  const Conv2dParams& params = conv.params;
  if (!params.same_padding && params.activation == Activation::none) {
    if (const auto* const weights = detail::packed_weights("conv2d", x, conv.w, conv.bias)) {
      const Shape unpooled = conv2d_shape(x.shape(), weights->shape(), params);
      const Tensor y =
          Tensor::empty({unpooled[0], unpooled[1] / 2, unpooled[2] / 2, unpooled[3]}, x.options());
      if (kernels::conv2d_pool_packed(cpu_context(), params, dense(x), *weights, y))
        return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
    }
  }
  return relu(max_pool2d(run_conv(x, conv)));
}

}  // namespace athanor
