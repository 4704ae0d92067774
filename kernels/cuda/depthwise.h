#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/divide.h"
#include "kernels/cuda/launch.h"
#include "kernels/scratch.h"

// What depthwise convolutions of every dtype share.

namespace athanor::cuda {

inline constexpr int kDepthwiseThreads = kColumnThreads;

/// Sizes as kernels need them; indices are below 2^31.
struct DepthwiseSizes {
  int h, w, c, k, p, q, r, s;
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int per_channel;      // output channels of an input channel
  Divider channels_of;  // k / per_channel
  Divider by_stride_h, by_stride_w;

  explicit DepthwiseSizes(const ConvSize& z)
      : h(static_cast<int>(z.h)),
        w(static_cast<int>(z.w)),
        c(static_cast<int>(z.c)),
        k(static_cast<int>(z.k)),
        p(static_cast<int>(z.p)),
        q(static_cast<int>(z.q)),
        r(static_cast<int>(z.r)),
        s(static_cast<int>(z.s)),
        stride_h(static_cast<int>(z.stride_h)),
        stride_w(static_cast<int>(z.stride_w)),
        padding_h(static_cast<int>(z.padding_h)),
        padding_w(static_cast<int>(z.padding_w)),
        dilation_h(static_cast<int>(z.dilation_h)),
        dilation_w(static_cast<int>(z.dilation_w)),
        per_channel(static_cast<int>(z.group_k())),
        channels_of(z.group_k()),
        by_stride_h(z.stride_h),
        by_stride_w(z.stride_w) {}
};

/// The (image, row, column, packet of channels) of a flat index.
struct Unravel {
  Divider packets, columns, rows;

  Unravel(std::int64_t row_count, std::int64_t column_count, std::int64_t packet_count)
      : packets(packet_count), columns(column_count), rows(row_count) {}

  struct Coordinates {
    int image, row, column, packet;
  };
  __device__ __forceinline__ Coordinates operator()(std::uint32_t index) const {
    const auto [pixel, packet] = packets.divide(index);
    const auto [line, column] = columns.divide(pixel);
    const auto [image, row] = rows.divide(line);
    return {static_cast<int>(image), static_cast<int>(row), static_cast<int>(column),
            static_cast<int>(packet)};
  }
};

/// w [K, taps] -> [taps, K], so that neighbours along the channels are neighbours in memory.
template <class T>
__global__ void __launch_bounds__(kDepthwiseThreads) by_taps(const T* w, int k, int taps, T* to) {
  for (int at = static_cast<int>(blockIdx.x) * kDepthwiseThreads + static_cast<int>(threadIdx.x);
       at < k * taps; at += static_cast<int>(gridDim.x) * kDepthwiseThreads)
    to[at] = w[at % k * taps + at / k];
}

template <class T>
const T* transpose_filters(const CudaContext& context, const ConvSize& z, const T* w, const Scratch& to) {
  launch(context, {"depthwise", blocks_for(context, z.k * z.r * z.s, kDepthwiseThreads), kDepthwiseThreads},
         by_taps<T>, w, static_cast<int>(z.k), static_cast<int>(z.r * z.s), to.as<T>());
  return to.as<T>();
}

inline std::size_t filter_elements(const ConvSize& z) {
  return static_cast<std::size_t>(z.k * z.r * z.s);
}

inline void check_images(const ConvSize& z) {
  constexpr std::int64_t kElements = std::int64_t{1} << 31;
  ATH_CHECK(
      z.h * z.w * z.c < kElements && z.p * z.q * z.k < kElements,
      "conv2d: an image of a depthwise convolution must have less than {} elements, but got {} x {} x {} "
      "and {} x {} x {}",
      kElements, z.h, z.w, z.c, z.p, z.q, z.k);
}

}  // namespace athanor::cuda
