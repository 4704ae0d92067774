#include <numeric>
#include <optional>

#include "kernels/cuda/conv_products.h"
#include "kernels/cuda/conv_views.h"
#include "kernels/cuda/gemm.h"

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

namespace athanor::cuda {
namespace {

/// Batches: one per group.
template <int N> Walk<N> groups(std::int64_t count, const std::array<std::int64_t, N>& moves) {
  std::array<Strides, N> strides;
  for (std::size_t i = 0; i < N; ++i) strides[i] = {moves[i]};
  return Walk<N>(Shape{count}, strides);
}
Walk<2> no_sum() {
  return Walk<2>(Shape{}, {});
}

/// The patches of x under the filter.
template <class T, bool kDeep> PatchView<T, kDeep> patches(const ConvSize& z, const T* x) {
  const auto axis = [](std::int64_t size, std::int64_t padding, std::int64_t stride, std::int64_t dilation) {
    return PatchAxis{static_cast<int>(size), static_cast<int>(-padding), static_cast<int>(stride),
                     static_cast<int>(dilation)};
  };
  return {x,
          axis(z.h, z.padding_h, z.stride_h, z.dilation_h),
          axis(z.w, z.padding_w, z.stride_w, z.dilation_w),
          static_cast<int>(z.c),
          z.h * z.w * z.c,
          Divider(z.p * z.q),
          Divider(z.q),
          Divider(z.group_c()),
          Divider(z.s),
          z.group_c() % kVec<T> == 0 && aligned<kVec<T>>(x)};
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

/// How many of a sum's terms are read. None where images have no pixels: all of them lie in the padding then,
/// and there is no memory to point into.
std::int64_t terms_of(const ConvSize& z, std::int64_t terms) {
  return z.h * z.w > 0 ? terms : 0;
}

}  // namespace

template <class T>
void product_forward(const CudaContext& context, const ConvSize& z, Activation activation, const T* x,
                     const T* w, const T* bias, T* y, std::int64_t most) {
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  for_images(z.n, z.p * z.q, most, [&](std::int64_t first, std::int64_t images) {
    const T* const from = x + first * z.h * z.w * z.c;
    T* const to = y + first * z.p * z.q * z.k;
    Gemm<T, PatchView<T, true>, MatrixView<T>, MatrixTo> g{
        .a = patches<T, true>(z, from),
        .b = {w, gk, depth, depth, 1, {gk * depth}},
        .to = {z.k, 1},
        .m = images * z.p * z.q,
        .n = gk,
        .k = terms_of(z, depth),
        .batches = groups<3>(z.groups, {z.group_c(), gk * depth, gk}),
        .summed = no_sum(),
        .finish = {to, false, bias, activation, false},
        .batch_channels = gk};
    gemm(context, "conv2d_forward", g, SplitK{images * z.p * z.q * z.k, z.k});
  });
}

template <class T>
bool product_forward_sums(const CudaContext& context, const ConvSize& z, const T* x, const T* w, T* y,
                          float* sums) {
  const std::int64_t depth = z.r * z.s * z.c, rows = z.n * z.p * z.q;
  if (rows > kMaxCounted || z.h * z.w == 0 || !product_sums_columns(rows, z.k, depth) ||
      !aligned<kVec<T>>(static_cast<const T*>(y)))
    return false;
  const auto run = [&]<class Left>(const Left& left) {
    Gemm<T, Left, MatrixView<T>, SummedMatrixTo> g{.a = left,
                                                   .b = {w, z.k, depth, depth, 1, {}},
                                                   .to = {{z.k, 1}, sums},
                                                   .m = rows,
                                                   .n = z.k,
                                                   .k = depth,
                                                   .batches = groups<3>(1, {}),
                                                   .summed = no_sum(),
                                                   .finish = {y, false, nullptr}};
    gemm(context, "conv2d_forward", g, std::nullopt);
  };
  if (z.is_pointwise()) {
    run(MatrixView<T>(x, rows, z.c, z.c, 1, {}));
  } else {
    run(patches<T, true>(z, x));
  }
  return true;
}

template <class T, class W>
void product_backward_weights(const CudaContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                              bool accumulate, std::int64_t most) {
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  for_images(z.n, z.p * z.q, most, [&](std::int64_t first, std::int64_t images) {
    Gemm<T, PatchView<T, false>, MatrixView<T>, MatrixTo> g{
        .a = patches<T, false>(z, x + first * z.h * z.w * z.c),
        .b = {dy + first * z.p * z.q * z.k, gk, images * z.p * z.q, 1, z.k, {gk}},
        .to = {1, depth},
        .m = depth,
        .n = gk,
        .k = terms_of(z, images * z.p * z.q),
        .batches = groups<3>(z.groups, {z.group_c(), gk, gk * depth}),
        .summed = no_sum(),
        .finish = {dw, !std::is_same_v<T, W>, nullptr, Activation::none, accumulate || first > 0}};
    gemm(context, "conv2d_backward_weights", g, SplitK{z.k * depth, 1});
  });
}

template <class T>
void product_backward_data(const CudaContext& context, const ConvSize& z, const T* dy, const T* w, T* dx,
                           bool accumulate, std::int64_t most) {
  const std::int64_t gc = z.group_c(), gk = z.group_k(), filter = z.r * z.s * gc;
  const auto axis = [](std::int64_t size, const Residue& residue) {
    return PatchAxis{static_cast<int>(size), static_cast<int>(residue.origin), 1,
                     static_cast<int>(-residue.shift)};
  };
  const auto run = [&](std::int64_t first, std::int64_t images, const Residue& h, const Residue& v) {
    const std::int64_t taps = h.taps * v.taps;
    const T* const from = dy + first * z.p * z.q * z.k;
    T* const to = dx + first * z.h * z.w * z.c + (h.first * z.w + v.first) * z.c;
    const Divider outs(h.count * v.count), row_outs(v.count), channels(gk),
        row_taps(std::max<std::int64_t>(1, v.taps));
    Gemm<T, PatchView<T, true>, FilterView<T>, PixelTo> g{
        .a = {from, axis(z.p, h), axis(z.q, v), static_cast<int>(z.k), z.p * z.q * z.k, outs, row_outs,
              channels, row_taps, gk % kVec<T> == 0 && aligned<kVec<T>>(from)},
        .b = {w + (h.tap * z.s + v.tap) * gc, filter, h.step * z.s * gc, v.step * gc, channels, row_taps,
              gc % kVec<T> == 0 && aligned<kVec<T>>(w)},
        .to = {outs, row_outs, z.h * z.w * z.c, z.stride_h * z.w * z.c, z.stride_w * z.c},
        .m = images * h.count * v.count,
        .n = gc,
        .k = taps * gk,
        .batches = groups<3>(z.groups, {gk, gk * filter, gc}),
        .summed = no_sum(),
        .finish = {to, false, nullptr, Activation::none, accumulate}};
    const bool all = z.stride_h == 1 && z.stride_w == 1;  // what a cut needs: one class has all of dx
    gemm(context, "conv2d_backward_data", g,
         all ? std::optional(SplitK{images * z.h * z.w * z.c, 1}) : std::nullopt);
  };
  for_images(z.n, z.h * z.w, most, [&](std::int64_t first, std::int64_t images) {
    for (std::int64_t a = 0; a < std::min(z.stride_h, z.h); ++a) {
      for (std::int64_t b = 0; b < std::min(z.stride_w, z.w); ++b) {
        run(first, images, Residue(a, z.h, z.r, z.stride_h, z.padding_h, z.dilation_h),
            Residue(b, z.w, z.s, z.stride_w, z.padding_w, z.dilation_w));
      }
    }
  });
}

#define ATH_INSTANTIATE(T)                                                                                  \
  template void product_forward(const CudaContext&, const ConvSize&, Activation, const T*, const T*,        \
                                const T*, T*, std::int64_t);                                                \
  template void product_backward_data(const CudaContext&, const ConvSize&, const T*, const T*, T*, bool,    \
                                      std::int64_t);                                                        \
  template void product_backward_weights(const CudaContext&, const ConvSize&, const T*, const T*, T*, bool, \
                                         std::int64_t);
ATH_INSTANTIATE(double)
ATH_INSTANTIATE(float)
ATH_INSTANTIATE(Half)
ATH_INSTANTIATE(BFloat16)
#undef ATH_INSTANTIATE
template bool product_forward_sums(const CudaContext&, const ConvSize&, const Half*, const Half*, Half*,
                                   float*);
template bool product_forward_sums(const CudaContext&, const ConvSize&, const BFloat16*, const BFloat16*,
                                   BFloat16*, float*);
template void product_backward_weights(const CudaContext&, const ConvSize&, const Half*, const Half*, float*,
                                       bool, std::int64_t);
template void product_backward_weights(const CudaContext&, const ConvSize&, const BFloat16*, const BFloat16*,
                                       float*, bool, std::int64_t);

}  // namespace athanor::cuda
