#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/read_back.h"
#include "kernels/scratch.h"

// scale * sum of f(x[i]...) over dense operands, in two launches: partial sums of blocks, then their sum, in
// an order that depends on n and the types alone. Reads every operand once, 16 bytes a thread at a time.

namespace athanor::cuda {

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
  constexpr std::size_t kWidest = std::max({sizeof(From)...});
  constexpr int W = 16 / static_cast<int>(kWidest);
  const std::int64_t blocks = total_blocks(n, kWidest);
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

/// The sum of f(i) over 0 <= i < n, of integers: exact in any order. A counted wait.
template <class I, class F>
I exact_total(const CudaContext& context, const char* name, std::int64_t n, const F& f,
              const Site& site = Site::current()) {
  const unsigned blocks = exact_total_blocks(context.multiprocessors(), n);
  const Scratch partial = context.scratch(blocks * sizeof(I)), sum = context.scratch(sizeof(I));
  launch(context, {name, blocks, kTotalThreads}, exact_sums<I, F>, n, f, partial.as<I>());
  launch(context, {name, 1, kTotalThreads}, exact_sums<I, Element<I>>, blocks, Element<I>{partial.as<I>()},
         sum.as<I>());
  return read_back(context, sum.as<I>(), site);
}

}  // namespace athanor::cuda
