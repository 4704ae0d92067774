#include "kernels/conv.h"

#include <functional>
#include <string_view>

#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cpu/activate_packed.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/matmul.h"
#include "kernels/packed_weights.h"

// Convolutions: finds an implementation in conv_list.cpp, runs it, and does what it leaves to do.

namespace athanor::kernels {
namespace {

using cpu::Code;
using cpu::PrimitiveKey;
using Pass = PrimitiveKey::Op;

/// The name to find code by: that of `impl`, or for `automatic` a measured one. run(code) may be timed.
template <class Run>
std::string_view choice(CpuContext& context, ConvImpl impl, const PrimitiveKey& key, const Run& run) {
  if (impl != ConvImpl::automatic) return name_of(impl);
  return cpu::chosen_conv(context, key, std::ref(run));
}

Code code_of(CpuContext& context, const PrimitiveKey& key, std::string_view name) {
  return cpu::require_code(context, cpu::conv_list(key.op), key, name);
}

const void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

void run_forward(CpuContext& context, const Code& code, Activation activation, const Tensor& x,
                 const Tensor& w, const Tensor& bias, const Tensor& y) {
  code.primitive->run(context, {x.raw_data(), w.raw_data(), data_or_null(bias), y.raw_data()});
  if (code.fused.activation == Activation::none) activate(context, activation, y);
}

/// Of x or w: written to `gradient`, or added by the code itself or, if it cannot, here.
void run_backward(CpuContext& context, const Code& code, const Tensor& first, const Tensor& second,
                  const Tensor& gradient, bool accumulate) {
  const bool add = accumulate && !code.fused.accumulate;
  const Tensor to = add ? Tensor::empty(gradient.shape(), {code.out, kCpu}) : gradient;
  code.primitive->run(context, {first.raw_data(), second.raw_data(), nullptr, to.raw_data()});
  if (add) add_into(context, to, gradient);
}

/// y = activation(y + residual), all dense, f32 or bf16.
void add_and_activate(CpuContext& context, Activation activation, const Tensor& residual, const Tensor& y) {
  const auto run = [&]<class T>() {
    dispatch_activation(activation, [&]<class Op>() {
      const T* const from = residual.data<T>();
      T* const to = y.data<T>();
      cpu::parallel_for(context, y.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
        cpu::vectorize([&] {
          for (std::int64_t i = begin; i < end; ++i)
            to[i] = T(Op::forward(static_cast<float>(to[i]) + static_cast<float>(from[i])));
        });
      });
    });
  };
  if (y.dtype() == DType::bf16) return run.template operator()<BFloat16>();
  run.template operator()<float>();
}

}  // namespace

void conv2d_forward(CpuContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, Out y) {
  if (y.numel() == 0) return;
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_forward, z, x.dtype(), y.dtype());
  key.bias = bias.defined();
  key.fused.activation = params.activation;
  const ConvImpl impl =
      z.c == 0 ? ConvImpl::reference : params.impl;  // the definition gives activation(bias)
  const std::string_view name = choice(context, impl, key, [&](const Code& timed) {
    run_forward(context, timed, params.activation, x, w, bias, empty_like(y));
  });
  run_forward(context, code_of(context, key, name), params.activation, x, w, bias, y);
}

bool conv2d_forward_sums(CpuContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         Out y, Out sums) {
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  if (y.numel() == 0 || z.c == 0 || params.activation != Activation::none) return false;
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_forward, z, x.dtype(), y.dtype());
  const std::string_view name = choice(context, params.impl, key, [&](const Code& timed) {
    run_forward(context, timed, Activation::none, x, w, {}, empty_like(y));
  });
  key.fused.sums = true;
  const Code code = cpu::find_code(context, cpu::conv_list(key.op), key, name);
  if (!code) return false;
  code.primitive->run(context, {.first = x.raw_data(),
                                .second = w.raw_data(),
                                .bias = nullptr,
                                .out = y.raw_data(),
                                .sums = sums.data<double>()});
  return true;
}

void conv2d_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x, const PackedWeights& w,
                   const Tensor& residual, Out y) {
  if (y.numel() == 0) return;
  const AllocTag tag("workspace");
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_forward, z, x.dtype(), y.dtype());
  key.bias = w.bias().defined();
  key.fused = {.activation = params.activation, .residual = residual.defined(), .packed = true};
  Code code;
  if (z.c > 0) code = cpu::find_code(context, cpu::conv_list(key.op), key, name_of(params.impl));
  if (code.fused.packed) {
    code.primitive->run(
        context, {x.raw_data(), w.in(context, code.primitive->layout()), data_or_null(w.bias()), y.raw_data(),
                  code.fused.residual ? residual.raw_data() : nullptr});
  } else {  // none, or code for plain weights, which may have been measured
    Conv2dParams first = params;
    if (residual.defined() || params.activation != Activation::relu) first.activation = Activation::none;
    conv2d_forward(context, first, x, w.plain(), w.plain_bias(), y);
    code.fused = {.activation = first.activation};
  }
  if (residual.defined() && !code.fused.residual)
    return add_and_activate(context, params.activation, residual, y);
  if (code.fused.activation == Activation::none) cpu::activate_packed(context, params.activation, y);
}

bool conv2d_pool_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x,
                        const PackedWeights& w, Out y) {
  const AllocTag tag("workspace");
  const ConvSize z(x.shape(), w.shape(), conv2d_shape(x.shape(), w.shape(), params), params);
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_forward, z, x.dtype(), y.dtype());
  key.bias = w.bias().defined();
  key.fused = {.activation = Activation::relu, .packed = true, .pooled = true};
  const Code code = cpu::find_code(context, cpu::conv_list(key.op), key, name_of(params.impl));
  if (!code) return false;
  if (y.numel() == 0) return true;
  code.primitive->run(
      context, {x.raw_data(), w.in(context, code.primitive->layout()), data_or_null(w.bias()), y.raw_data()});
  return true;
}

void conv2d_backward_data(CpuContext& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                          Out dx, Write write_dx) {
  if (dx.numel() == 0) return;
  const bool accumulate = write_dx == Write::accumulate;
  if (dy.numel() == 0) {
    if (!accumulate) fill(context, dx, 0);
    return;
  }
  const ConvSize z(dx.shape(), w.shape(), dy.shape(), params);
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_backward_data, z, dy.dtype(), dx.dtype());
  const std::string_view name = choice(context, params.impl, key, [&](const Code& timed) {
    run_backward(context, timed, dy, w, empty_like(dx), false);
  });
  key.fused.accumulate = accumulate;
  run_backward(context, code_of(context, key, name), dy, w, dx, accumulate);
}

void conv2d_backward_weights(CpuContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, Out dw, Write write_dw, Out dbias, Write write_dbias) {
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
  if (!dw.defined() || dw.numel() == 0) return;
  const bool accumulate = write_dw == Write::accumulate;
  if (dy.numel() == 0) {
    if (!accumulate) fill(context, dw, 0);
    return;
  }
  const ConvSize z(x.shape(), dw.shape(), dy.shape(), params);
  PrimitiveKey key = cpu::conv_key(context, Pass::conv_backward_weights, z, x.dtype(), dw.dtype());
  const std::string_view name = choice(context, params.impl, key, [&](const Code& timed) {
    run_backward(context, timed, x, dy, empty_like(dw), false);
  });
  key.fused.accumulate = accumulate;
  run_backward(context, code_of(context, key, name), x, dy, dw, accumulate);
}

}  // namespace athanor::kernels
