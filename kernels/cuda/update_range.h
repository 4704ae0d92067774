#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/vec.h"
#include "kernels/update_ops.h"

// Updates move memory, a few FLOPs a byte. A range of a table goes to kParts blocks, whose threads take four
// elements at a time. Everything of a step that is one number per parameter (Adam's bias correction) is
// worked out by a small kernel before; it alone reads how many updates a member has received, so that the
// large one may count this update. Sums of squares: one per range, in double, then all of them in one block.

namespace athanor::kernels {

using cuda::kVec;
using cuda::Vec;

inline constexpr int kUpdateThreads = 256;
inline constexpr int kWidth = 4;  // elements of every tensor a thread takes at a time: 16 bytes of f32
inline constexpr int kParts = 4;
inline constexpr std::int64_t kPart = kUpdateChunk / kParts;

inline const UpdateRange* ranges_of(const UpdateTable& table) {
  return reinterpret_cast<const UpdateRange*>(table.ranges.raw_data());
}
inline unsigned parts_of(const UpdateTable& table) {
  return static_cast<unsigned>(table.count * kParts);
}

/// Whether kWidth elements at p can be moved at once.
template <class T> __device__ __forceinline__ bool vectors_at(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (sizeof(T) * kWidth) == 0;
}

/// Calls f(i, n) for this block's part of a range: n, an integral_constant, elements from i on.
template <class F>
__device__ __forceinline__ void for_each_in_part(const UpdateRange& range, bool vectors, const F& f) {
  const std::int64_t begin = blockIdx.x % kParts * kPart;
  const std::int64_t end = begin + kPart < range.count ? begin + kPart : range.count;
  std::int64_t single = begin;
  if (vectors && end > begin) {
    single = end - (end - begin) % kWidth;
    for (std::int64_t i = begin + threadIdx.x * kWidth; i < single; i += kUpdateThreads * kWidth)
      f(i, std::integral_constant<int, kWidth>());
  }
  for (std::int64_t i = single + threadIdx.x; i < end; i += kUpdateThreads)
    f(i, std::integral_constant<int, 1>());
}

/// The flat tensors of an update; `weight` null where there is no compute copy.
template <class G, class W, int kStates> struct Flat {
  const G* gradient;
  W* weight;
  float* master;
  float* average;
  float* state[kStates > 0 ? kStates : 1];
};

/// In double: finite f32 values cannot overflow it, and what is not finite makes the sum so.
template <class T>
__device__ __forceinline__ double sum_of_squares(const T* __restrict__ values, std::int64_t n) {
  constexpr int V = kVec<T>;
  double sum = 0;
  std::int64_t single = 0;
  if (reinterpret_cast<std::uintptr_t>(values) % 16 == 0) {
    single = n / V * V;
#pragma unroll 2
    for (std::int64_t i = std::int64_t{threadIdx.x} * V; i < single; i += kUpdateThreads * V) {
      const auto in = cuda::load<V>(values + i);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double value = cuda::widen(in, k);
        sum = std::fma(value, value, sum);
      }
    }
  }
  for (std::int64_t i = single + threadIdx.x; i < n; i += kUpdateThreads) {
    const double value = float(values[i]);
    sum = std::fma(value, value, sum);
  }
  return cuda::group_sum<kUpdateThreads>(sum);
}

/// Where a range's values begin.
struct InGradients {
  __device__ static std::int64_t of(const UpdateRange& range) { return range.gradients; }
};
struct InMasters {
  __device__ static std::int64_t of(const UpdateRange& range) { return range.masters; }
};

/// Of every range. Reads its values once.
template <class Where, class T>
__global__ void __launch_bounds__(kUpdateThreads)
    squares_of_ranges(const T* values, const UpdateRange* ranges, double* partial) {
  const UpdateRange range = ranges[blockIdx.x];
  const double sum = sum_of_squares(values + Where::of(range), range.count);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// Calls use(total, block) for every block's `count` sums.
template <class Use>
__global__ void __launch_bounds__(kUpdateThreads)
    total_squares(const double* partial, std::int64_t count, Use use) {
  partial += blockIdx.x * count;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kUpdateThreads) sum += partial[i];
  sum = cuda::group_sum<kUpdateThreads>(sum);
  if (threadIdx.x == 0) use(sum, blockIdx.x);
}

/// f.at<V>(i) for all n elements of every one of several tensors that lie end to end, V of them from i on;
/// `blocks` blocks each. Before, f.begin(tensor, n), which says whether there is anything to do.
template <int V, class F>
__global__ void __launch_bounds__(kUpdateThreads) for_each_vector(std::int64_t n, unsigned blocks, F f) {
  if (!f.begin(blockIdx.x / blocks, n)) return;
  const std::int64_t step = std::int64_t{blocks} * kUpdateThreads * V, single = n - n % V;
  const std::int64_t thread = std::int64_t{blockIdx.x % blocks} * kUpdateThreads + threadIdx.x;
  for (std::int64_t i = thread * V; i < single; i += step) f.template at<V>(i);
  if (single + thread < n) f.template at<1>(single + thread);
}

template <class T, class F, class... P>
void launch_vectors(const CudaContext& context, const char* name, std::int64_t tensors, std::int64_t n,
                    const F& f, const P*... pointers) {
  const bool vectors = cuda::aligned<kVec<T>>(pointers...) && (n % kVec<T> == 0 || tensors == 1);
  const std::int64_t steps = vectors ? (n + kVec<T> - 1) / kVec<T> : n;
  const unsigned blocks = cuda::blocks_for(context, steps, kUpdateThreads);
  cuda::launch(context, {name, static_cast<unsigned>(tensors) * blocks, kUpdateThreads},
               vectors ? for_each_vector<kVec<T>, F> : for_each_vector<1, F>, n, blocks, f);
}

/// average_op() for all threads of a block; one of them works it out, since it divides doubles.
__device__ __forceinline__ AverageOp average_op_of_block(const StepState& step, const AverageRule& rule) {
  __shared__ AverageOp op;
  if (threadIdx.x == 0) op = average_op(step, rule);
  __syncthreads();
  return op;
}

}  // namespace athanor::kernels
