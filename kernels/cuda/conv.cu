#include <numeric>

#include "kernels/conv.h"
#include "kernels/cuda/conv_depthwise.h"
#include "kernels/cuda/conv_views.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vendor.h"
#include "kernels/cuda/vendor_conv.h"
#include "kernels/detail/conv_size.h"
#include "kernels/matmul.h"

// A convolution as products of matrices (Chetlur et al. 2014, arXiv:1410.0759, section 3), per group:
//
//   pass               product                                          M            N    K
//   forward            y [npq, k]   = patches of x [npq, rsc] w^T       N P Q        K_g  R S C_g
//   backward weights   dw^T [rsc, k] = patches of x^T dy                R S C_g      K_g  N P Q
//   backward data      dx [nhw, c]  = patches of dy [nhw, rsk] w'       N H W        C_g  R S K_g
//
// Each is 2 N P Q K R S C_g FLOPs; bytes are those of the tensors where tiles are reused well. In the last
// pass a pixel of x sees the outputs p with p * stride = h + padding - r * dilation. With a stride, those of
// a tap are whole numbers for some pixels only; pixels of the same residue h mod stride share their taps, so
// each class of residues is a convolution of its own, with stride 1, and no work on zeros.

namespace athanor::kernels {
namespace {

using cuda::Divider;
using cuda::kVec;

void check_sizes(const ConvSize& z) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  ATH_CHECK((z.h + 2 * z.padding_h) * (z.w + 2 * z.padding_w) < kMost && z.r * z.s * z.c < kMost &&
                z.r * z.s * z.k < kMost && z.stride_h < kMost && z.stride_w < kMost,
            "conv2d: a padded image must have less than {} pixels, and a filter less than that many taps",
            kMost);
}

/// Batches: one per group.
template <int N> cuda::Walk<N> groups(std::int64_t count, const std::array<std::int64_t, N>& moves) {
  std::array<Strides, N> strides;
  for (std::size_t i = 0; i < N; ++i) strides[i] = {moves[i]};
  return cuda::Walk<N>(Shape{count}, strides);
}
cuda::Walk<2> no_sum() {
  return cuda::Walk<2>(Shape{}, {});
}

/// The patches of x under the filter.
template <class T, bool kDeep> cuda::PatchView<T, kDeep> patches(const ConvSize& z, const T* x) {
  const auto axis = [](std::int64_t size, std::int64_t padding, std::int64_t stride, std::int64_t dilation) {
    return cuda::PatchAxis{static_cast<int>(size), static_cast<int>(-padding), static_cast<int>(stride),
                           static_cast<int>(dilation)};
  };
  return {x,
          axis(z.h, z.padding_h, z.stride_h, z.dilation_h),
          axis(z.w, z.padding_w, z.stride_w, z.dilation_w),
          z.c,
          z.h * z.w * z.c,
          Divider(z.p * z.q),
          Divider(z.q),
          Divider(z.group_c()),
          Divider(z.s),
          z.group_c() % kVec<T> == 0 && cuda::aligned<kVec<T>>(x)};
}

template <class T>
void forward(const CudaContext& context, const ConvSize& z, Activation activation, const T* x, const T* w,
             const T* bias, T* y) {
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  cuda::for_images(z.n, z.p * z.q, [&](std::int64_t first, std::int64_t images) {
    const T* const from = x + first * z.h * z.w * z.c;
    T* const to = y + first * z.p * z.q * z.k;
    cuda::Gemm<T, cuda::PatchView<T, true>, cuda::MatrixView<T>, cuda::MatrixTo> g{
        .a = patches<T, true>(z, from),
        .b = {w, gk, depth, depth, 1, {gk * depth}},
        .to = {z.k, 1},
        .m = images * z.p * z.q,
        .n = gk,
        .k = depth,
        .batches = groups<3>(z.groups, {z.group_c(), gk * depth, gk}),
        .summed = no_sum(),
        .finish = {to, false, bias, activation, false},
        .batch_channels = gk};
    cuda::gemm(context, "conv2d_forward", g, cuda::GemmCut{images * z.p * z.q * z.k, z.k});
  });
}

template <class T, class W>
void backward_weights(const CudaContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                      bool accumulate) {
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  cuda::for_images(z.n, z.p * z.q, [&](std::int64_t first, std::int64_t images) {
    cuda::Gemm<T, cuda::PatchView<T, false>, cuda::MatrixView<T>, cuda::MatrixTo> g{
        .a = patches<T, false>(z, x + first * z.h * z.w * z.c),
        .b = {dy + first * z.p * z.q * z.k, gk, images * z.p * z.q, 1, z.k, {gk}},
        .to = {1, depth},
        .m = depth,
        .n = gk,
        .k = images * z.p * z.q,
        .batches = groups<3>(z.groups, {z.group_c(), gk, gk * depth}),
        .summed = no_sum(),
        .finish = {dw, !std::is_same_v<T, W>, nullptr, Activation::none, accumulate || first > 0}};
    cuda::gemm(context, "conv2d_backward_weights", g, cuda::GemmCut{z.k * depth, 1});
  });
}

/// One axis of a class of pixels: every stride-th of x, from `first`, `count` of them; and the taps that see
/// them: every step-th, from tap `tap`, `taps` of them. Pixel i of these is under output origin + i - t *
/// shift at tap t of these.
struct Residue {
  std::int64_t first, count, tap, taps, step, origin, shift;

  Residue(std::int64_t residue, std::int64_t size, std::int64_t filter, std::int64_t stride,
          std::int64_t padding, std::int64_t dilation)
      : first(residue), count((size - residue + stride - 1) / stride), tap(0) {
    const std::int64_t common = std::gcd(stride, dilation);
    step = stride / common, shift = dilation / common;
    while (tap < std::min(step, filter) && (first + padding - tap * dilation) % stride != 0) ++tap;
    taps = tap < std::min(step, filter) ? (filter - tap + step - 1) / step : 0;
    origin = taps > 0 ? (first + padding - tap * dilation) / stride : 0;
  }
};

template <class T>
void backward_data(const CudaContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  const std::int64_t gc = z.group_c(), gk = z.group_k(), filter = z.r * z.s * gc;
  const auto axis = [](std::int64_t size, const Residue& residue) {
    return cuda::PatchAxis{static_cast<int>(size), static_cast<int>(residue.origin), 1,
                           static_cast<int>(-residue.shift)};
  };
  const auto run = [&](std::int64_t first, std::int64_t images, const Residue& h, const Residue& v) {
    const std::int64_t taps = h.taps * v.taps;
    const T* const from = dy + first * z.p * z.q * z.k;
    T* const to = dx + first * z.h * z.w * z.c + (h.first * z.w + v.first) * z.c;
    const Divider outs(h.count * v.count), row_outs(v.count), channels(gk),
        row_taps(std::max<std::int64_t>(1, v.taps));
    cuda::Gemm<T, cuda::PatchView<T, true>, cuda::FilterView<T>, cuda::PixelTo> g{
        .a = {from, axis(z.p, h), axis(z.q, v), z.k, z.p * z.q * z.k, outs, row_outs, channels, row_taps,
              gk % kVec<T> == 0 && cuda::aligned<kVec<T>>(from)},
        .b = {w + (h.tap * z.s + v.tap) * gc, filter, h.step * z.s * gc, v.step * gc, channels, row_taps,
              gc % kVec<T> == 0 && cuda::aligned<kVec<T>>(w)},
        .to = {outs, row_outs, z.h * z.w * z.c, z.stride_h * z.w * z.c, z.stride_w * z.c},
        .m = images * h.count * v.count,
        .n = gc,
        .k = taps * gk,
        .batches = groups<3>(z.groups, {gk, gk * filter, gc}),
        .summed = no_sum(),
        .finish = {to, false, nullptr, Activation::none, false}};
    const bool all = z.stride_h == 1 && z.stride_w == 1;  // what a cut needs: one class has all of dx
    cuda::gemm(context, "conv2d_backward_data", g,
               all ? std::optional(cuda::GemmCut{images * z.h * z.w * z.c, 1}) : std::nullopt);
  };
  cuda::for_images(z.n, z.h * z.w, [&](std::int64_t first, std::int64_t images) {
    for (std::int64_t a = 0; a < std::min(z.stride_h, z.h); ++a) {
      for (std::int64_t b = 0; b < std::min(z.stride_w, z.w); ++b) {
        run(first, images, Residue(a, z.h, z.r, z.stride_h, z.padding_h, z.dilation_h),
            Residue(b, z.w, z.s, z.stride_w, z.padding_w, z.dilation_w));
      }
    }
  });
}

/// A 1 x 1 filter at every pixel is a plain product, whose pixels need no finding.
bool pointwise(const ConvSize& z) {
  return z.r == 1 && z.s == 1 && z.stride_h == 1 && z.stride_w == 1 && z.padding_h == 0 && z.padding_w == 0 &&
         z.groups == 1;
}
/// x [..., columns] as a matrix.
Tensor rows(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({x.numel() / columns, columns}, {columns, 1}, 0);
}
Tensor columns(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({columns, x.numel() / columns}, {1, columns}, 0);
}

/// The end of a call that the vendor did not take.
void check_impl(const Conv2dParams& params, const Tensor& x) {
  ATH_CHECK(params.impl != ConvImpl::eigen && params.impl != ConvImpl::direct,
            "conv2d: impl must be automatic, reference or vendor on CUDA, but got {}",
            params.impl == ConvImpl::eigen ? "eigen" : "direct");
  if (params.impl != ConvImpl::vendor) return;
  if (!cuda::has_vendor())
    detail::fail<BackendError>("conv2d: this build has no cuDNN; use ConvImpl::automatic");
  detail::fail<BackendError>("conv2d: cuDNN has no plan for {} {}; use ConvImpl::automatic", x.dtype(),
                             x.shape());
}

template <class T> const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

template <>
void conv2d_forward(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, const Tensor& y) {
  if (y.numel() == 0) return;
  const bool nothing = x.numel() == 0;  // no channels
  if (!nothing && cuda::vendor_conv_forward(context, params, x, w, bias, y)) return;
  check_impl(params, x);
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  if (!nothing && pointwise(z))
    return matmul(context, MatmulImpl::reference, rows(x, z.c), columns(w, z.c), bias, params.activation,
                  rows(y, z.k), Write::overwrite);
  check_sizes(z);
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto run = cuda::is_depthwise(z) ? cuda::depthwise_forward<T> : forward<T>;
    run(context, z, params.activation, x.data<T>(), w.data<T>(), data_or_null<T>(bias), y.data<T>());
  });
}

template <>
void conv2d_backward_data(CudaContext& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                          const Tensor& dx) {
  if (dx.numel() == 0) return;
  const bool nothing = dy.numel() == 0;  // no filters
  if (!nothing && cuda::vendor_conv_backward_data(context, params, dy, w, dx)) return;
  check_impl(params, dx);
  const ConvSize z(dx.shape(), w.shape(), dy.shape(), params);
  if (!nothing && pointwise(z))
    return matmul(context, MatmulImpl::reference, rows(dy, z.k), rows(w, z.c), {}, Activation::none,
                  rows(dx, z.c), Write::overwrite);
  check_sizes(z);
  dispatch_floating(dy.dtype(), "conv2d", [&]<class T>() {
    const auto run = cuda::is_depthwise(z) ? cuda::depthwise_backward_data<T> : backward_data<T>;
    run(context, z, dy.data<T>(), w.data<T>(), dx.data<T>());
  });
}

template <>
void conv2d_backward_weights(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                             Write write_dbias) {
  const bool nothing = x.numel() == 0 || dy.numel() == 0;
  if (!nothing &&
      cuda::vendor_conv_backward_weights(context, params, x, dy, dw, write_dw, dbias, write_dbias))
    return;
  check_impl(params, x);
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
  if (!dw.defined() || dw.numel() == 0) return;
  const bool accumulate = write_dw == Write::accumulate;
  const ConvSize z(x.shape(), dw.shape(), dy.shape(), params);
  if (!nothing && pointwise(z))
    return matmul(context, MatmulImpl::reference, columns(dy, z.k), rows(x, z.c), {}, Activation::none,
                  rows(dw, z.c), write_dw);
  check_sizes(z);
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto run = [&]<class W>() {
      const auto pass =
          cuda::is_depthwise(z) ? cuda::depthwise_backward_weights<T, W> : backward_weights<T, W>;
      pass(context, z, x.data<T>(), dy.data<T>(), dw.data<W>(), accumulate);
    };
    if (dw.dtype() == x.dtype()) {
      run.template operator()<T>();
    } else {
      run.template operator()<Accumulate<T>>();
    }
  });
}

}  // namespace athanor::kernels
