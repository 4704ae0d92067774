#include "kernels/conv.h"

#include "kernels/copy.h"
#include "kernels/cpu/conv_choice.h"
#include "kernels/cpu/conv_few_pixels.h"
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/conv_pool.h"
#include "kernels/cpu/conv_rules.h"
#include "kernels/cpu/conv_winograd.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/matmul.h"
#include "kernels/packed_weights.h"

// Runs a convolution by the implementation that was asked for, measured, or chosen by the rules of
// conv_rules.h; the implementations are in conv_*.cpp.

namespace athanor::kernels {
namespace {

using cpu::PrimitiveKey;
using Pass = PrimitiveKey::Op;

PrimitiveKey key_of(const CpuContext& context, const ConvSize& z, Pass pass, DType in, DType out, bool bias) {
  PrimitiveKey key;
  key.op = pass;
  key.in = in;
  key.out = out;
  key.bias = bias;
  key.threads = cpu::threads_for(context, z.work());
  key.sizes = {z.n, z.h,        z.w,        z.c,         z.k,         z.r,          z.s,          z.p,
               z.q, z.stride_h, z.stride_w, z.padding_h, z.padding_w, z.dilation_h, z.dilation_w, z.groups};
  return key;
}

/// Our Winograd code for this pass, or null. Throws BackendError if it was requested but does not apply.
cpu::Primitive* winograd(CpuContext& context, const Conv2dParams& params, const ConvSize& z,
                         PrimitiveKey key) {
  const bool asked = params.impl == ConvImpl::winograd;
  if (!asked && params.impl != ConvImpl::automatic) return nullptr;
  const bool fits = cpu::winograd_fits(z) && key.in != DType::f64;
  if (asked && !fits)
    athanor::detail::fail<BackendError>(
        "conv2d: Winograd's algorithm needs AVX2, f32 or a half type, images that are not empty, 3 x 3 "
        "filters "
        "of multiples of 16 channels, stride and dilation 1, padding up to 2 and one group; use "
        "ConvImpl::automatic");
  if (!fits || !(asked || cpu::prefers_winograd(z, key.op, key.in))) return nullptr;
  key.winograd = true;
  return context.primitives().find(key);
}

/// oneDNN's code for this pass, or null. Throws BackendError if `vendor` was requested but is missing.
cpu::Primitive* vendor(CpuContext& context, const Conv2dParams& params, const ConvSize& z,
                       const PrimitiveKey& key) {
  if (params.impl != ConvImpl::automatic && params.impl != ConvImpl::vendor) return nullptr;
  if (params.impl == ConvImpl::automatic && cpu::prefers_eigen(z, key.in)) return nullptr;
  cpu::Primitive* const primitive = context.primitives().find(key);
  if (!primitive && params.impl == ConvImpl::vendor) {
    if (!cpu::has_onednn())
      athanor::detail::fail<BackendError>("conv2d: this build has no oneDNN; use ConvImpl::automatic");
    athanor::detail::fail<BackendError>(
        "conv2d: oneDNN has no fast code for {} x [{}, {}, {}, {}] with [{}, {}, {}, {}] filters; use "
        "ConvImpl::automatic",
        key.in, z.n, z.h, z.w, z.c, z.k, z.r, z.s, z.group_c());
  }
  return primitive;
}

/// Whether our own direct code handles this pass. Throws BackendError if it was requested but does not apply.
bool direct(const Conv2dParams& params, const ConvSize& z, Pass pass, DType dtype) {
  if (params.impl != ConvImpl::direct && params.impl != ConvImpl::automatic) return false;
  if (cpu::direct_fits(z, pass, dtype))
    return params.impl == ConvImpl::direct || cpu::prefers_direct(z, pass, dtype);
  if (params.impl == ConvImpl::direct)
    athanor::detail::fail<BackendError>(
        "conv2d: the direct code needs AVX2, f32 or a half type and one group; for its backward passes, no "
        "dilation along a row, and few input channels; use ConvImpl::automatic");
  return false;
}

/// Whether this machine's code behind `impl` handles this pass.
bool available(CpuContext& context, const ConvSize& z, const PrimitiveKey& key, ConvImpl impl) {
  switch (impl) {
    case ConvImpl::vendor: return context.primitives().find(key) != nullptr;
    case ConvImpl::winograd: return cpu::winograd_fits(z) && key.in != DType::f64;
    case ConvImpl::direct: return cpu::direct_fits(z, key.op, key.in);
    default: return true;
  }
}

/// `params` with the implementation chosen for this pass by measurement, if one is or run(params) may be
/// timed.
template <class Run>
Conv2dParams with_choice(CpuContext& context, Conv2dParams params, const ConvSize& z, const PrimitiveKey& key,
                         const Run& run) {
  if (params.impl != ConvImpl::automatic) return params;
  if (const std::optional<ConvImpl> choice = cpu::chosen_conv(key)) {
    if (available(context, z, key, *choice)) params.impl = *choice;  // else it is another machine's
  } else if (cpu::measures_convs()) {
    std::vector<ConvImpl> impls;
    for (const ConvImpl impl :
         {ConvImpl::automatic, ConvImpl::reference, ConvImpl::vendor, ConvImpl::direct, ConvImpl::winograd})
      if (available(context, z, key, impl)) impls.push_back(impl);
    params.impl = cpu::choose_conv(key, impls, [&](ConvImpl impl) {
      Conv2dParams timed = params;
      timed.impl = impl;
      run(timed);
    });
  }
  return params;
}

template <class T> const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

template <>
void conv2d_forward(CpuContext& context, const Conv2dParams& asked, const Tensor& x, const Tensor& w,
                    const Tensor& bias, const Tensor& y) {
  if (y.numel() == 0) return;
  if (!cpu::fuses(asked.activation)) {
    Conv2dParams plain = asked;
    plain.activation = Activation::none;
    conv2d_forward(context, plain, x, w, bias, y);
    return activate(context, asked.activation, y);
  }
  const ConvSize z(x.shape(), w.shape(), y.shape(), asked);
  if (z.c > 0) {  // else the definition gives activation(bias)
    const PrimitiveKey key = key_of(context, z, Pass::conv_forward, x.dtype(), y.dtype(), bias.defined());
    const Conv2dParams params = with_choice(context, asked, z, key, [&](const Conv2dParams& timed) {
      conv2d_forward(context, timed, x, w, bias, empty_like(y));
    });
    const void* const offsets = bias.defined() ? bias.raw_data() : nullptr;
    PrimitiveKey activated = key;
    activated.activation = params.activation;
    if (cpu::Primitive* const primitive = winograd(context, params, z, activated))
      return primitive->run(context, x.raw_data(), w.raw_data(), offsets, y.raw_data());
    if (direct(params, z, Pass::conv_forward, x.dtype())) {
      return dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
        if constexpr (!std::is_same_v<T, double>)
          cpu::conv_forward_direct<T>(context, z, params.activation, x.data<T>(), w.data<T>(),
                                      data_or_null<T>(bias), y.data<T>());
      });
    }
    if (cpu::Primitive* const primitive = vendor(context, params, z, key)) {
      primitive->run(context, x.raw_data(), w.raw_data(), offsets, y.raw_data());
      return activate(context, params.activation, y);
    }
  }
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    cpu::conv_forward_eigen<T>(context, z, asked.activation, x.data<T>(), w.data<T>(), data_or_null<T>(bias),
                               y.data<T>());
  });
}

/// Winograd's code alone sums its results, while they are in a core's cache.
template <>
bool conv2d_forward_sums(CpuContext& context, const Conv2dParams& asked, const Tensor& x, const Tensor& w,
                         const Tensor& y, const Tensor& sums) {
  const ConvSize z(x.shape(), w.shape(), y.shape(), asked);
  if (x.dtype() == DType::f64 || y.numel() == 0 || z.c == 0 || asked.activation != Activation::none)
    return false;
  const PrimitiveKey key = key_of(context, z, Pass::conv_forward, x.dtype(), y.dtype(), false);
  const Conv2dParams params = with_choice(context, asked, z, key, [&](const Conv2dParams& timed) {
    conv2d_forward(context, timed, x, w, {}, empty_like(y));
  });
  if (!winograd(context, params, z, key)) return false;
  cpu::winograd_forward_sums(context, key, x.raw_data(), w.raw_data(), y.raw_data(), sums.data<double>());
  return true;
}

namespace {

/// Code for packed weights, or null, and whether it also adds the residual.
struct PackedCode {
  cpu::Primitive* primitive = nullptr;
  bool adds = false;
};
PackedCode packed_code(CpuContext& context, const Conv2dParams& params, const ConvSize& z, bool bias,
                       bool residual) {
  PrimitiveKey key = key_of(context, z, Pass::conv_forward, DType::f32, DType::f32, bias);
  key.packed = true;
  key.residual = residual;
  key.activation = params.activation == Activation::relu ? Activation::relu : Activation::none;
  if (params.impl == ConvImpl::automatic && cpu::prefers_few_pixels(z)) {
    key.few_pixels = true;
    return {context.primitives().find(key), residual};
  }
  if (cpu::Primitive* found = winograd(context, params, z, key)) return {found, residual};
  if (direct(params, z, Pass::conv_forward, DType::f32)) return {};
  if (params.impl != ConvImpl::automatic && params.impl != ConvImpl::vendor) return {};
  // oneDNN 2.6 adds a wrong residual to pixels whose whole filter lies on padding.
  const bool only_padding =
      z.padding_h >= (z.r - 1) * z.dilation_h + 1 || z.padding_w >= (z.s - 1) * z.dilation_w + 1;
  if (!residual || !only_padding) {
    if (cpu::Primitive* found = context.primitives().find(key)) return {found, residual};
  }
  if (!residual) return {};
  key.residual = false;
  key.activation = Activation::none;
  return {context.primitives().find(key), false};
}

/// y = activation(y + residual), all dense f32.
void add_and_activate(CpuContext& context, Activation activation, const Tensor& residual, const Tensor& y) {
  dispatch_activation(activation, [&]<class Op>() {
    const float* const from = residual.data<float>();
    float* const to = y.data<float>();
    cpu::parallel_for(context, y.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<cpu::kFastType<float>>([&] {
        for (std::int64_t i = begin; i < end; ++i) to[i] = Op::forward(to[i] + from[i]);
      });
    });
  });
}

}  // namespace

void conv2d_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x, const PackedWeights& w,
                   const Tensor& residual, const Tensor& y) {
  if (y.numel() == 0) return;
  const AllocTag tag("workspace");
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  Conv2dParams first = params;  // the part fused into the convolution
  if (residual.defined()) first.activation = Activation::none;
  PackedCode code;
  if (z.c > 0) code = packed_code(context, params, z, w.bias().defined(), residual.defined());
  if (!code.primitive) {
    conv2d_forward(context, first, x, w.plain(), w.bias(), y);
    if (residual.defined()) add_and_activate(context, params.activation, residual, y);
    return;
  }
  code.primitive->run(context, x.raw_data(), w.in(context, code.primitive->layout()),
                      w.bias().defined() ? w.bias().raw_data() : nullptr, y.raw_data(),
                      code.adds ? residual.raw_data() : nullptr);
  if (residual.defined() && !code.adds) return add_and_activate(context, params.activation, residual, y);
  if (params.activation != Activation::relu) activate(context, params.activation, y);
}

bool conv2d_pool_packed(CpuContext& context, const Conv2dParams& params, const Tensor& x,
                        const PackedWeights& w, const Tensor& y) {
  const AllocTag tag("workspace");
  const Shape unpooled = conv2d_shape(x.shape(), w.shape(), params);
  const ConvSize z(x.shape(), w.shape(), unpooled, params);
  if (params.impl != ConvImpl::automatic || !cpu::conv_pool_fits(z)) return false;
  if (y.numel() == 0) return true;
  PrimitiveKey key = key_of(context, z, Pass::conv_forward, DType::f32, DType::f32, w.bias().defined());
  key.packed = true;
  key.pooled = true;
  cpu::Primitive* const primitive = context.primitives().find(key);
  primitive->run(context, x.raw_data(), w.in(context, primitive->layout()),
                 w.bias().defined() ? w.bias().raw_data() : nullptr, y.raw_data());
  return true;
}

template <>
void conv2d_backward_data(CpuContext& context, const Conv2dParams& asked, const Tensor& dy, const Tensor& w,
                          const Tensor& dx, Write write_dx) {
  if (dx.numel() == 0) return;
  const bool accumulate = write_dx == Write::accumulate;
  if (dy.numel() == 0) {
    if (!accumulate) fill(context, dx, 0);
    return;
  }
  const ConvSize z(dx.shape(), w.shape(), dy.shape(), asked);
  const PrimitiveKey key = key_of(context, z, Pass::conv_backward_data, dy.dtype(), dx.dtype(), false);
  const Conv2dParams params = with_choice(context, asked, z, key, [&](const Conv2dParams& timed) {
    conv2d_backward_data(context, timed, dy, w, empty_like(dx), Write::overwrite);
  });
  if (cpu::Primitive* const primitive = winograd(context, params, z, key))
    return primitive->run(context, dy.raw_data(), w.raw_data(), nullptr, dx.raw_data(),
                          accumulate ? dx.raw_data() : nullptr);
  if (accumulate) {
    const Tensor fresh = empty_like(dx);
    conv2d_backward_data(context, params, dy, w, fresh, Write::overwrite);
    return add_into(context, fresh, dx);
  }
  if (direct(params, z, Pass::conv_backward_data, dy.dtype())) {
    return dispatch_floating(dy.dtype(), "conv2d", [&]<class T>() {
      if constexpr (!std::is_same_v<T, double>)
        cpu::conv_backward_data_scatter<T>(context, z, dy.data<T>(), w.data<T>(), dx.data<T>());
    });
  }
  if (cpu::Primitive* const primitive = vendor(context, params, z, key))
    return primitive->run(context, dy.raw_data(), w.raw_data(), nullptr, dx.raw_data());
  dispatch_floating(dy.dtype(), "conv2d", [&]<class T>() {
    cpu::conv_backward_data_eigen<T>(context, z, dy.data<T>(), w.data<T>(), dx.data<T>());
  });
}

template <>
void conv2d_backward_weights(CpuContext& context, const Conv2dParams& asked, const Tensor& x,
                             const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                             Write write_dbias) {
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
  if (!dw.defined() || dw.numel() == 0) return;
  const bool accumulate = write_dw == Write::accumulate;
  if (dy.numel() == 0) {
    if (!accumulate) fill(context, dw, 0);
    return;
  }
  const ConvSize z(x.shape(), dw.shape(), dy.shape(), asked);
  PrimitiveKey key = key_of(context, z, Pass::conv_backward_weights, x.dtype(), dw.dtype(), false);
  const Conv2dParams params = with_choice(context, asked, z, key, [&](const Conv2dParams& timed) {
    conv2d_backward_weights(context, timed, x, dy, empty_like(dw), Write::overwrite, {}, Write::overwrite);
  });
  key.accumulate = accumulate;
  if (cpu::Primitive* const primitive = winograd(context, params, z, key))
    return primitive->run(context, x.raw_data(), dy.raw_data(), nullptr, dw.raw_data());
  if (direct(params, z, Pass::conv_backward_weights, x.dtype())) {
    return dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
      if constexpr (!std::is_same_v<T, double>) {
        if (dw.dtype() == DType::f32)
          return cpu::conv_backward_weights_direct<T, float>(context, z, x.data<T>(), dy.data<T>(),
                                                             dw.data<float>(), accumulate);
        cpu::conv_backward_weights_direct<T, T>(context, z, x.data<T>(), dy.data<T>(), dw.data<T>(),
                                                accumulate);
      }
    });
  }
  if (accumulate) key.out = DType::f32;
  key.accumulate = false;
  if (cpu::Primitive* const primitive = vendor(context, params, z, key)) {
    if (!accumulate) return primitive->run(context, x.raw_data(), dy.raw_data(), nullptr, dw.raw_data());
    const Tensor fresh = Tensor::empty(dw.shape(), {DType::f32, kCpu});
    primitive->run(context, x.raw_data(), dy.raw_data(), nullptr, fresh.raw_data());
    return add_into(context, fresh, dw);
  }
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto run = [&]<class W>() {
      cpu::conv_backward_weights_eigen<T, W>(context, z, x.data<T>(), dy.data<T>(), dw.data<W>(), accumulate);
    };
    if (dw.dtype() == x.dtype()) return run.template operator()<T>();
    run.template operator()<Accumulate<T>>();
  });
}

}  // namespace athanor::kernels
