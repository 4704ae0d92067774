#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/divide.h"
#include "kernels/cuda/gemm_tile.h"

// The factors of a convolution's products, read where they lie: see TileCopy in gemm_tile.h for what a view
// is, and conv.cu for which pass multiplies what.

namespace athanor::cuda {

/// Indices of pixels are 32-bit numbers in kernels, so more images than that go in several rounds: calls
/// f(first image, images), once at least, with less than 2^30 elements in a round where an image has
/// `elements`.
template <class F> void for_images(std::int64_t images, std::int64_t elements, const F& f) {
  const std::int64_t most =
      std::max<std::int64_t>(1, (std::int64_t{1} << 30) / std::max<std::int64_t>(1, elements));
  std::int64_t first = 0;
  do {
    f(first, std::min(most, images - first));
    first += most;
  } while (first < images);
}

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
  struct Part {
    std::int64_t offset;
    int h, w;
  };
  using Along = Part;
  using Across = Part;

  const T* data;  // image 0, the group's first channel
  PatchAxis h, w;
  std::int64_t pixel;            // elements from one pixel to the next
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
    const std::uint32_t tap = channels.divide(index), c = channels.remainder(index, tap);
    const std::uint32_t r = row_taps.divide(tap), s = row_taps.remainder(tap, r);
    return part(static_cast<int>(r) * h.step, static_cast<int>(s) * w.step, c);
  }
  __device__ __forceinline__ Across across(const Origin& origin, int i) const {
    const std::uint32_t index = origin.across + static_cast<std::uint32_t>(i);
    const std::uint32_t n = image_outs.divide(index), out = image_outs.remainder(index, n);
    const std::uint32_t p = row_outs.divide(out), q = row_outs.remainder(out, p);
    return part(static_cast<int>(p) * h.stride + h.origin, static_cast<int>(q) * w.stride + w.origin,
                n * image);
  }
  __device__ __forceinline__ FactorAddress<T> at(const Origin& origin, const Along& along,
                                                 const Across& across) const {
    const int y = along.h + across.h, x = along.w + across.w;
    const bool inside = static_cast<unsigned>(y) < static_cast<unsigned>(h.size) &&
                        static_cast<unsigned>(x) < static_cast<unsigned>(w.size);
    return {origin.base + (along.offset + across.offset), inside};
  }

 private:
  __device__ __forceinline__ Part part(int y, int x, std::int64_t offset) const {
    return {offset + (std::int64_t{y} * w.size + x) * pixel, y, x};
  }
};

/// The filters that a pass over pixels multiplies dy with: one depth per tap and output channel (r, s, k),
/// along it the input channels. The taps may be every so-manieth of the filter's only.
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
    const std::uint32_t at = channels.divide(index), k = channels.remainder(index, at);
    const std::uint32_t r = row_taps.divide(at), s = row_taps.remainder(at, r);
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
  __device__ __forceinline__ std::int64_t at(std::int64_t m, std::int64_t n) const {
    const auto index = static_cast<std::uint32_t>(m);
    const std::uint32_t one = image_outs.divide(index), out = image_outs.remainder(index, one);
    const std::uint32_t i = row_outs.divide(out), j = row_outs.remainder(out, i);
    return one * image + i * row + j * pixel + n;
  }
};

}  // namespace athanor::cuda
