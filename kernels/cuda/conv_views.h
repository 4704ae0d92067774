#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/divide.h"
#include "kernels/cuda/gemm_tile.h"
#include "kernels/cuda/walk.h"
#include "kernels/detail/conv_size.h"

// The factors of a convolution's products, read where they lie: see TileCopy in gemm_tile.h for what a view
// is, and conv.cu for which pass multiplies what.

namespace athanor::cuda {

/// How an axis of the image under the filter is walked: position = origin + out * stride + tap * step.
struct PatchAxis {
  int size;  ///< of the image; positions outside are zero
  int origin, stride, step;
};

/// The patches of an image that a filter sees, as a matrix that exists nowhere: one line per output pixel (n,
/// i, j), along it the taps and channels (r, s, c). As rows of a factor (im2col), or, where !kDeep, as its
/// depths. Indices are below 2^31.
template <class T, bool kDeep> struct PatchView {
  using Element = T;
  struct Origin {
    const T* base;
    std::uint32_t along, across;
  };
  // A tap and channel, and an output pixel: an element is at their sums. (Few numbers, for a thread has
  // several.)
  struct Along {
    int h, w, c;
  };
  struct Across {
    int h, w, n;
  };

  const T* data;  // image 0, the group's first channel
  PatchAxis h, w;
  int pixel;                     // elements from one pixel to the next
  std::int64_t image;            // from one image to the next
  Divider image_outs, row_outs;  // output pixels of an image and of a row
  Divider channels, row_taps;    // of the group; of a row of the filter
  bool whole;                    // a packet lies in one tap

  __device__ __forceinline__ static constexpr bool deep() { return kDeep; }
  __device__ __forceinline__ Origin origin(const T* base, std::int64_t along, std::int64_t across) const {
    return {base, static_cast<std::uint32_t>(along), static_cast<std::uint32_t>(across)};
  }
  __device__ __forceinline__ Along along(const Origin& origin, int i) const {
    const std::uint32_t index = origin.along + static_cast<std::uint32_t>(i);
    const auto [tap, c] = channels.divide(index);
    const auto [r, s] = row_taps.divide(tap);
    return {static_cast<int>(r) * h.step, static_cast<int>(s) * w.step, static_cast<int>(c)};
  }
  __device__ __forceinline__ Across across(const Origin& origin, int i) const {
    const std::uint32_t index = origin.across + static_cast<std::uint32_t>(i);
    const auto [n, out] = image_outs.divide(index);
    const auto [p, q] = row_outs.divide(out);
    return {static_cast<int>(p) * h.stride + h.origin, static_cast<int>(q) * w.stride + w.origin,
            static_cast<int>(n)};
  }
  __device__ __forceinline__ FactorAddress<T> at(const Origin& origin, const Along& along,
                                                 const Across& across) const {
    const int y = along.h + across.h, x = along.w + across.w;
    const bool inside = static_cast<unsigned>(y) < static_cast<unsigned>(h.size) &&
                        static_cast<unsigned>(x) < static_cast<unsigned>(w.size);
    // Unsigned, for beyond the filter's last tap it may wrap.
    const auto at =
        static_cast<int>(static_cast<unsigned>(y) * static_cast<unsigned>(w.size) + static_cast<unsigned>(x));
    return {origin.base + (across.n * image + std::int64_t{at} * pixel + along.c), inside};
  }
};

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

/// The same of an image whose padding is not zero.
template <class T> struct PaddedPatchView : PatchView<T, true> { T nothing; };

/// The filters that a pass over pixels multiplies dy with: one depth per tap and output channel (r, s, k),
/// along it the input channels. With a stride, the taps are every `step`-th of the filter's.
template <class T> struct FilterView {
  using Element = T;
  struct Origin {
    const T* base;
    std::uint32_t across;
  };
  using Along = int;
  using Across = std::int64_t;

  const T* data;          // the group's first filter, at the first tap of the pass
  std::int64_t filter;    // elements from one filter to the next
  std::int64_t row, tap;  // and from one tap of the pass to the next
  Divider channels, row_taps;
  bool whole;

  __device__ __forceinline__ static constexpr bool deep() { return false; }
  __device__ __forceinline__ Origin origin(const T* base, std::int64_t along, std::int64_t across) const {
    return {base + along, static_cast<std::uint32_t>(across)};
  }
  __device__ __forceinline__ Along along(const Origin&, int i) const { return i; }
  __device__ __forceinline__ Across across(const Origin& origin, int i) const {
    const std::uint32_t index = origin.across + static_cast<std::uint32_t>(i);
    const auto [at, k] = channels.divide(index);
    const auto [r, s] = row_taps.divide(at);
    return k * filter + r * row + s * tap;
  }
  __device__ __forceinline__ FactorAddress<T> at(const Origin& origin, Along along, Across across) const {
    return {origin.base + across + along, true};
  }
};

/// Pixels of an image as rows of the result: every stride-th in each direction, channels side by side.
struct PixelTo {
  Divider image_outs, row_outs;    // pixels of the pass in an image and in a row
  std::int64_t image, row, pixel;  // elements from one of the pass to the next

  __host__ __device__ static constexpr bool by_columns() { return false; }
  bool in_packets(int width) const { return image % width == 0 && row % width == 0 && pixel % width == 0; }
  __device__ __forceinline__ std::int64_t at(std::int64_t m, std::int64_t n) const {
    const auto index = static_cast<std::uint32_t>(m);
    const auto [one, out] = image_outs.divide(index);
    const auto [i, j] = row_outs.divide(out);
    return one * image + i * row + j * pixel + n;
  }
};

/// Batches: one per group.
template <int N> Walk<N> groups(std::int64_t count, const std::array<std::int64_t, N>& moves) {
  std::array<Strides, N> strides;
  for (std::size_t i = 0; i < N; ++i) strides[i] = {moves[i]};
  return Walk<N>(Shape{count}, strides);
}
inline Walk<2> no_sum() {
  return Walk<2>(Shape{}, {});
}

}  // namespace athanor::cuda
