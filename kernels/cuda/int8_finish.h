#pragma once

#include <cstdint>

#include "kernels/cuda/gemm_call.h"
#include "kernels/int8_ops.h"

namespace athanor::cuda {

/// How an exact sum of 8-bit products becomes an element of y, in the steps of kernels::conv2d_int8(): none
/// of them is fused with another.
template <> struct Finish<std::uint8_t> {
  std::uint8_t* y;  // or null: `real` is written, which is not rounded
  float* real;
  const float* multiplier;  // by channel
  const std::int32_t* bias;
  const std::uint8_t* residual;  // laid out like y, or null
  float residual_scale;
  std::int32_t residual_zero;
  kernels::RoundToU8 round;

  /// The same, `elements` further on.
  Finish moved(std::int64_t elements) const {
    Finish to = *this;
    if (y) to.y += elements;
    if (real) to.real += elements;
    if (residual) to.residual += elements;
    return to;
  }

  __device__ __forceinline__ void operator()(std::int64_t at, std::int64_t channel, std::int32_t sum) const {
    const float v = scaled(channel, sum);
    if (y) {
      y[at] = round(residual ? v + of_residual(residual[at]) : v);
    } else {
      real[at] = v;
    }
  }

  /// Whether packet<W>() may be called, for neighbours that lie on their alignment relative to y.
  template <int W = kVec<std::uint8_t>> bool in_packets() const {
    return aligned<W>(y, residual) && aligned<kVec<float>>(real);
  }
  /// W neighbours along the channels, by one access of each tensor.
  template <int W>
  __device__ __forceinline__ void packet(std::int64_t at, std::int64_t channel,
                                         const std::int32_t (&sums)[W]) const {
    float v[W];
#pragma unroll
    for (int i = 0; i < W; ++i) v[i] = scaled(channel + i, sums[i]);
    if (!y) {
      constexpr int kPart = W < kVec<float> ? W : kVec<float>;
#pragma unroll
      for (int i = 0; i < W; i += kPart) {
        Vec<float, kPart> out;
#pragma unroll
        for (int e = 0; e < kPart; ++e) out[e] = v[i + e];
        store(real + at + i, out);
      }
      return;
    }
    if (residual) {
      const auto added = load<W>(residual + at);
#pragma unroll
      for (int i = 0; i < W; ++i) v[i] += of_residual(added[i]);
    }
    Vec<std::uint8_t, W> out;
#pragma unroll
    for (int i = 0; i < W; ++i) out[i] = round(v[i]);
    store(y + at, out);
  }

 private:
  __device__ __forceinline__ float scaled(std::int64_t channel, std::int32_t sum) const {
    return multiplier[channel] * static_cast<float>(bias[channel] + sum);
  }
  __device__ __forceinline__ float of_residual(std::uint8_t stored) const {
    return residual_scale * static_cast<float>(stored - residual_zero);
  }
};

}  // namespace athanor::cuda
