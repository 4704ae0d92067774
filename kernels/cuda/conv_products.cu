#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/conv_views.h"
#include "kernels/cuda/gemm.h"

// A convolution as products of matrices: conv_plan.h says which.

namespace athanor::cuda {
namespace {

template <class T> void product_forward(const CudaContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  for_images(z.n, z.p * z.q, call.most, [&](std::int64_t first, std::int64_t images) {
    const T* const from = call.x.data<T>() + first * z.h * z.w * z.c;
    T* const to = call.y.data<T>() + first * z.p * z.q * z.k;
    Gemm<T, PatchView<T, true>, MatrixView<T>, MatrixTo> g{
        .a = patches<T, true>(z, from),
        .b = {call.w.data<T>(), gk, depth, depth, 1, {gk * depth}},
        .to = {z.k, 1},
        .size = forward_product(z, images),
        .batches = groups<3>(z.groups, {z.group_c(), gk * depth, gk}),
        .summed = no_sum(),
        .finish = {to, false, data_or_null<T>(call.bias), call.activation()},
        .batch_channels = gk,
        .channels = z.k};
    gemm(context, kernel_name(call.pass), g);
  });
}

/// Where there is code for it: whole packets, tiles whose depth is not cut, and x in one launch.
template <class T> bool product_forward_sums(const CudaContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  GemmShape shape = forward_product(z, z.n);
  shape.cuttable = 0;
  T* const y = call.y.data<T>();
  if (shape.m > kMaxCounted || z.h * z.w == 0 || !product_sums_columns(shape) ||
      !aligned<kVec<T>>(static_cast<const T*>(y)))
    return false;
  const T* const x = call.x.data<T>();
  const auto run = [&]<class Left>(const Left& left) {
    Gemm<T, Left, MatrixView<T>, SummedMatrixTo> g{.a = left,
                                                   .b = {call.w.data<T>(), z.k, shape.k, shape.k, 1, {}},
                                                   .to = {{z.k, 1}, call.sums->data<float>()},
                                                   .size = shape,
                                                   .batches = groups<3>(1, {}),
                                                   .summed = no_sum(),
                                                   .finish = {y, false, nullptr}};
    gemm(context, kernel_name(call.pass), g);
  };
  if (z.is_pointwise()) {
    run(MatrixView<T>(x, shape.m, z.c, z.c, 1, {}));
  } else {
    run(patches<T, true>(z, x));
  }
  return true;
}

template <class T, class W> void product_backward_weights(const CudaContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  W* const dw = call.w.data<W>();
  for_images(z.n, z.p * z.q, call.most, [&](std::int64_t first, std::int64_t images) {
    Gemm<T, PatchView<T, false>, MatrixView<T>, MatrixTo> g{
        .a = patches<T, false>(z, call.x.data<T>() + first * z.h * z.w * z.c),
        .b = {call.y.data<T>() + first * z.p * z.q * z.k, gk, images * z.p * z.q, 1, z.k, {gk}},
        .to = {1, depth},
        .size = weights_product(z, images),
        .batches = groups<3>(z.groups, {z.group_c(), gk, gk * depth}),
        .summed = no_sum(),
        .finish = {dw, !std::is_same_v<T, W>, nullptr, Activation::none,
                   call.accumulates() || first > 0 ? dw : nullptr}};
    gemm(context, kernel_name(call.pass), g);
  });
}

template <class T> void product_backward_data(const CudaContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  const T* const w = call.w.data<T>();
  const std::int64_t gc = z.group_c(), gk = z.group_k(), filter = z.r * z.s * gc;
  const auto axis = [](std::int64_t size, const Residue& residue) {
    return PatchAxis{static_cast<int>(size), static_cast<int>(residue.origin), 1,
                     static_cast<int>(-residue.shift)};
  };
  const auto run = [&](std::int64_t first, std::int64_t images, const Residue& h, const Residue& v) {
    const T* const from = call.y.data<T>() + first * z.p * z.q * z.k;
    T* const to = call.x.data<T>() + first * z.h * z.w * z.c + (h.first * z.w + v.first) * z.c;
    const Divider outs(h.count * v.count), row_outs(v.count), channels(gk),
        row_taps(std::max<std::int64_t>(1, v.taps));
    Gemm<T, PatchView<T, true>, FilterView<T>, PixelTo> g{
        .a = {from, axis(z.p, h), axis(z.q, v), static_cast<int>(z.k), z.p * z.q * z.k, outs, row_outs,
              channels, row_taps, gk % kVec<T> == 0 && aligned<kVec<T>>(from)},
        .b = {w + (h.tap * z.s + v.tap) * gc, filter, h.step * z.s * gc, v.step * gc, channels, row_taps,
              gc % kVec<T> == 0 && aligned<kVec<T>>(w)},
        .to = {outs, row_outs, z.h * z.w * z.c, z.stride_h * z.w * z.c, z.stride_w * z.c},
        .size = data_product(z, images, h, v),
        .batches = groups<3>(z.groups, {gk, gk * filter, gc}),
        .summed = no_sum(),
        .finish = {to, false, nullptr, Activation::none, call.accumulates() ? to : nullptr}};
    gemm(context, kernel_name(call.pass), g);
  };
  for_images(z.n, z.h * z.w, call.most, [&](std::int64_t first, std::int64_t images) {
    for_residues(z, [&](const Residue& h, const Residue& v) { run(first, images, h, v); });
  });
}

}  // namespace

bool product_conv(CudaContext& context, const ConvCall& call) {
  if (!call.sums || !call.z.is_pointwise()) check_sizes(call);
  return dispatch_floating(call.x.dtype(), "conv2d", [&]<class T>() {
    if (call.sums) {
      if constexpr (sizeof(T) == 2) return product_forward_sums<T>(context, call);
    }
    switch (call.pass) {
      case ConvPass::forward: product_forward<T>(context, call); break;
      case ConvPass::backward_data: product_backward_data<T>(context, call); break;
      case ConvPass::backward_weights:
        if (call.w.dtype() == call.x.dtype()) {
          product_backward_weights<T, T>(context, call);
        } else {
          product_backward_weights<T, Accumulate<T>>(context, call);
        }
    }
    return true;
  });
}

}  // namespace athanor::cuda
