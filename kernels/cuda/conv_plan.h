#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/detail/conv_size.h"

// Which products a convolution is, and how our own kernels divide its work: decided here, for the kernels and
// for the account alike. No CUDA types, so that a build without it can ask.
//
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

enum class ConvPass : unsigned char { forward, backward_data, backward_weights };
/// What the kernels of a pass are called.
constexpr const char* kernel_name(ConvPass pass) {
  constexpr const char* kNames[] = {"conv2d_forward", "conv2d_backward_data", "conv2d_backward_weights"};
  return kNames[static_cast<int>(pass)];
}

inline constexpr const char* kInt8Conv = "conv2d_int8";

/// One input channel in each of several groups. As products of matrices they would be as narrow as one
/// number, so they have kernels of their own.
inline bool is_depthwise(const ConvSize& z) {
  return z.groups > 1 && z.group_c() == 1;
}
/// The channels that a thread of a depthwise kernel takes at a time; `packet`: elements of 16 bytes.
inline int depthwise_width(const ConvSize& z, int packet) {
  return z.group_k() == 1 && z.c % packet == 0 ? packet : 1;
}

/// The forward pass over some of the images. No terms are read where images have no pixels: all of them lie
/// in the padding then, and there is no memory to point into.
inline GemmShape forward_product(const ConvSize& z, std::int64_t images) {
  return {.m = images * z.p * z.q,
          .n = z.group_k(),
          .k = z.h * z.w > 0 ? z.r * z.s * z.group_c() : 0,
          .batches = z.groups,
          .cuttable = images * z.p * z.q * z.k};
}
/// Of 8-bit integers, of which the padding has terms, too: it need not be 0.
inline GemmShape int8_product(const ConvSize& z, std::int64_t images) {
  GemmShape shape = forward_product(z, images);
  shape.k = z.r * z.s * z.group_c();
  return shape;
}
inline GemmShape weights_product(const ConvSize& z, std::int64_t images) {
  return {.m = z.r * z.s * z.group_c(),
          .n = z.group_k(),
          .k = z.h * z.w > 0 ? images * z.p * z.q : 0,
          .batches = z.groups,
          .cuttable = z.k * z.r * z.s * z.group_c()};
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

/// Calls f(rows, columns) with the residues of each class of pixels of x.
template <class F> void for_residues(const ConvSize& z, const F& f) {
  for (std::int64_t a = 0; a < std::min(z.stride_h, z.h); ++a) {
    for (std::int64_t b = 0; b < std::min(z.stride_w, z.w); ++b)
      f(Residue(a, z.h, z.r, z.stride_h, z.padding_h, z.dilation_h),
        Residue(b, z.w, z.s, z.stride_w, z.padding_w, z.dilation_w));
  }
}
/// The backward pass to such a class; the depth is cut where one class has all of dx.
inline GemmShape data_product(const ConvSize& z, std::int64_t images, const Residue& rows,
                              const Residue& columns) {
  return {.m = images * rows.count * columns.count,
          .n = z.group_c(),
          .k = rows.taps * columns.taps * z.group_k(),
          .batches = z.groups,
          .cuttable = z.stride_h == 1 && z.stride_w == 1 ? images * z.h * z.w * z.c : 0};
}

}  // namespace athanor::cuda
