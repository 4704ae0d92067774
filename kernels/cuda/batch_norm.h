#pragma once

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm_ops.h"

// What the kernels of batch norm share. x is [R, C] in memory and C lies side by side, so a thread keeps its
// channels and walks down the rows.
//
// A pass that sums leaves the partial sums of its blocks, [splits, 2, C]. The kernel that needs the totals
// adds them up itself: every block those of its channels, in the same order, before it begins. So no launch
// lies between the two, and nothing waits for another block. The pass that sums begins at the end of x, which
// the kernel before it wrote last, and the next pass begins where this one has ended: what the cache still
// holds of x is read from there.
//
// What belongs to a channel is in shared memory, not in registers: up to five numbers for each of a thread's
// eight channels would leave none for loads in flight.

namespace athanor::cuda {

/// Channels of a tile, at most.
inline constexpr int kNormChannels = 64;
/// Vectors that a thread has in flight of the one tensor that it reads.
inline constexpr int kNormVectors = 4;
/// Blocks that share a multiprocessor, with 64 registers for each thread. On Turing and Blackwell there is
/// one, since ptxas would spill.
inline constexpr int kNormBlocks = kArchitecture >= 80 && !kIsBlackwell ? 2 : 1;

inline ColumnTiling norm_tiling(const Tensor& x, int width) {
  return ColumnTiling(norm_cut(x, width));
}
/// Of a pass that only writes: two blocks for each multiprocessor, which are there at once.
inline ColumnTiling norm_writer_tiling(const CudaContext& context, const ColumnTiling& summed, int width) {
  return {summed.rows,  summed.channels,   width, std::int64_t{2} * context.multiprocessors(), 4,
          kNormThreads, width == 1 ? 5 : 3};
}

/// A block's tile of channels: its first channel, and where shared memory has what belongs to one of them, so
/// that threads side by side read neighbouring words.
template <int V> struct ChannelTile {
  static constexpr int kEach = V < 4 ? 1 : 4;  ///< numbers that are read at once

  std::int64_t first;
  int width, shift;

  __device__ __forceinline__ ChannelTile(const ColumnTiling& tiling, const ColumnTiling::ThreadTile& at)
      : first(at.channel - at.column * V), width(V << tiling.shift), shift(tiling.shift) {}
  __device__ __forceinline__ int slot(int channel) const {
    const int column = channel / V, k = channel % V;
    return (k / kEach << shift) * kEach + column * kEach + k % kEach;
  }
  /// Numbers k .. k + kEach - 1 of the V of a column.
  template <class A> __device__ __forceinline__ Vec<A, kEach> load(const A* values, int column, int k) const {
    return cuda::load<kEach>(values + ((k / kEach << shift) + column) * kEach);
  }
};

/// Keeps the compiler from reading shared memory once, into registers, instead of where it is needed.
__device__ __forceinline__ void read_anew() {
  asm("" ::: "memory");
}

namespace detail {

/// Adds the partial sums w, w + 32, ... of E channels.
template <int E, class A>
__device__ __forceinline__ void add_residue(const A* from, std::int64_t splits, std::int64_t channels, int w,
                                            double (&total)[E]) {
  double sum[E] = {};
#pragma unroll(E == 4 ? 4 : 8)
  for (std::int64_t split = w; split < splits; split += 32) {
    const Vec<A, E> part = load<E>(from + split * 2 * channels);
#pragma unroll
    for (int i = 0; i < E; ++i) sum[i] += static_cast<double>(part[i]);
  }
#pragma unroll
  for (int i = 0; i < E; ++i) total[i] += sum[i];
}

}  // namespace detail

/// The totals of a tile's channels over partials [splits, 2, C], in the order of total_columns(): first sums,
/// then second ones, `width` of each. Every thread of the block calls it, once.
template <int V, class A>
__device__ __forceinline__ const double* total_tile(const ChannelTile<V>& tile, const A* partials,
                                                    std::int64_t splits, std::int64_t channels) {
  constexpr int E = ChannelTile<V>::kEach;
  __shared__ double shared[kNormThreads / 2 * E];
  // `lanes` threads read a row of partial sums. Group g takes those of g, g + 32, ..., and, where there are
  // fewer than 32 groups, those of g + 16, g + 8 and g + 24.
  const int lanes = 2 * tile.width / E, lane = static_cast<int>(threadIdx.x) & (lanes - 1),
            group = static_cast<int>(threadIdx.x) / lanes;
  const int all = kNormThreads / lanes, groups = all < 32 ? all : 32;
  const int which = lane * E >= tile.width ? 1 : 0;
  const std::int64_t channel = tile.first + lane * E - which * tile.width;
  double total[E] = {};
  if (group < groups && channel < channels) {
    const A* from = partials + which * channels + channel;
    detail::add_residue<E>(from, splits, channels, group, total);
    if (groups <= 16) detail::add_residue<E>(from, splits, channels, group + 16, total);
    if constexpr (V == 1) {  // 64 lanes
      if (groups <= 8) {
        double other[1] = {};
        detail::add_residue<1>(from, splits, channels, group + 8, other);
        detail::add_residue<1>(from, splits, channels, group + 24, other);
        total[0] += other[0];
      }
    }
  }
  for (int n = groups / 2; n > 0; n /= 2) {
    if (group >= n && group < 2 * n) {
#pragma unroll
      for (int i = 0; i < E; ++i) shared[((group - n) * lanes + lane) * E + i] = total[i];
    }
    __syncthreads();
    if (group < n) {
#pragma unroll
      for (int i = 0; i < E; ++i) total[i] += shared[(group * lanes + lane) * E + i];
    }
    __syncthreads();
  }
  if (group == 0) {
#pragma unroll
    for (int i = 0; i < E; ++i) shared[lane * E + i] = total[i];
  }
  __syncthreads();
  return shared;
}

/// Per-channel operands in memory.
template <class A> struct Channels {
  const A *stats, *gamma, *beta;  // gamma, beta null: 1 and 0

  Channels(const Tensor& s, const Tensor& g, const Tensor& b)
      : stats(s.data<A>()), gamma(data_or_null<A>(g)), beta(data_or_null<A>(b)) {}
  __device__ __forceinline__ A scale_of(std::int64_t c, A inverse) const {
    return gamma ? inverse * gamma[c] : inverse;
  }
  __device__ __forceinline__ A beta_of(std::int64_t c) const { return beta ? beta[c] : A(0); }
};

/// What follows from a channel's two sums.
template <class A> struct GradientTotals {
  const A* inverses;
  double share;  ///< see batch_norm_mean()
  Target<A> dgamma, dbeta;
  bool normalised = false;  ///< the second sum is of g times the normalised x, not of g (x - mean)

  __device__ __forceinline__ void put(std::int64_t c, double first, double second) const {
    if (dgamma.to) dgamma.put(c, of_normalised(c, second));
    dbeta.put(c, first);
  }
  __device__ __forceinline__ double of_normalised(std::int64_t c, double second) const {
    return normalised ? second : second * static_cast<double>(inverses[c]);
  }
  __device__ __forceinline__ A offset(double first) const {
    return A(kernels::batch_norm_mean(first, share));
  }
  __device__ __forceinline__ A slope(std::int64_t c, double second) const {
    const double inverse = static_cast<double>(inverses[c]);
    return A(kernels::batch_norm_mean(of_normalised(c, second) * inverse, share));
  }
};

// A bit for each element, whether its gradient passes a ReLU: in a byte those of eight neighbours, the first
// one lowest. Rows have a multiple of eight. A thread has those of its V elements from `here` on.

template <int V> __device__ __forceinline__ unsigned load_mask(const std::uint8_t* mask, std::int64_t here) {
  const unsigned byte = mask[here / 8];
  return V == 8 ? byte : byte >> (here % 8);
}

/// Threads that share a byte have the same row, and so come here together.
template <int V>
__device__ __forceinline__ void store_mask(std::uint8_t* mask, std::int64_t here, unsigned bits) {
  static_assert(V == 8 || V == 4 || V == 1);
  const unsigned lane = threadIdx.x % 32;
  if constexpr (V == 4) {
    bits |= __shfl_xor_sync(3u << (lane & ~1u), bits, 1) << 4;
  } else if constexpr (V == 1) {
    bits = __ballot_sync(0xffu << (lane & ~7u), bits != 0) >> (lane & ~7u);
  }
  if (here % 8 == 0) mask[here / 8] = static_cast<std::uint8_t>(bits);
}

}  // namespace athanor::cuda
