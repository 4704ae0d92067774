#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/cuda/group.h"

// scale * sum of f(x[i]...) over dense operands, in two launches: partial sums of blocks, then their sum, in
// an order that depends on n and the types alone. Reads every operand once, 16 bytes a thread at a time.

namespace athanor::cuda {

inline constexpr int kTotalThreads = 256;
inline constexpr std::int64_t kTotalBlocks =
    1024;  // at most: not of the device, so that sums are the same on all

template <bool kAligned, int W, class A, class F, class... From>
__global__ void __launch_bounds__(kTotalThreads)
    total_partials(std::int64_t n, F f, double* partial, const From*... x) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kTotalThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kTotalThreads, vectors = n / W;
  A sum[W] = {};
#pragma unroll 4
  for (std::int64_t at = thread; at < vectors; at += step) {
    const std::tuple<Vec<From, W>...> in(load_vector<kAligned, W>(x + at * W)...);
#pragma unroll
    for (int i = 0; i < W; ++i)
      sum[i] += std::apply([&](const auto&... vector) { return f(vector[i]...); }, in);
  }
  if (const std::int64_t at = vectors * W + thread; at < n) sum[0] += f(x[at]...);  // the last few
  double total = 0;
#pragma unroll
  for (int i = 0; i < W; ++i) total += static_cast<double>(sum[i]);
  total = group_sum<kTotalThreads>(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

template <class A>
__global__ void __launch_bounds__(kTotalThreads)
    total_final(const double* partial, int blocks, double scale, A* y) {
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kTotalThreads) total += partial[i];
  total = group_sum<kTotalThreads>(total);
  if (threadIdx.x == 0) *y = A(total * scale);
}

/// Queues *y = scale * sum(f(x[i]...)); f returns A, the sums' type within a block.
template <class A, class F, class... From>
void total(const CudaContext& context, const char* name, std::int64_t n, const F& f, double scale, A* y,
           const From*... x) {
  constexpr int W = 16 / static_cast<int>(std::max({sizeof(From)...}));
  const std::int64_t work = std::int64_t{kTotalThreads} * W * 4;
  const std::int64_t blocks = std::clamp<std::int64_t>((n + work - 1) / work, 1, kTotalBlocks);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(blocks) * sizeof(double));
  const Launch how{name, static_cast<unsigned>(blocks), kTotalThreads};
  if ((aligned<W>(x) && ...)) {
    launch(context, how, total_partials<true, W, A, F, From...>, n, f, scratch.as<double>(), x...);
  } else {
    launch(context, how, total_partials<false, W, A, F, From...>, n, f, scratch.as<double>(), x...);
  }
  launch(context, {name, 1, kTotalThreads}, total_final<A>, scratch.as<double>(), blocks, scale, y);
}

template <class I, class F>
__global__ void __launch_bounds__(kTotalThreads) exact_sums(std::int64_t n, F f, I* sums) {
  const std::int64_t step = std::int64_t{gridDim.x} * kTotalThreads;
  I sum = 0;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kTotalThreads + threadIdx.x; i < n; i += step) sum += f(i);
  sum = group_sum<kTotalThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class I> struct Element {
  const I* values;
  __device__ __forceinline__ I operator()(std::int64_t i) const { return values[i]; }
};

/// Queues *y = sum of f(i) over 0 <= i < n, of integers: exact in any order.
template <class I, class F>
void exact_total(const CudaContext& context, const char* name, std::int64_t n, const F& f, I* y) {
  const unsigned blocks = std::max(blocks_for(context, (n + 3) / 4, kTotalThreads), 1u);
  const Scratch scratch = context.scratch(blocks * sizeof(I));
  launch(context, {name, blocks, kTotalThreads}, exact_sums<I, F>, n, f, scratch.as<I>());
  launch(context, {name, 1, kTotalThreads}, exact_sums<I, Element<I>>, blocks, Element<I>{scratch.as<I>()},
         y);
}

}  // namespace athanor::cuda
