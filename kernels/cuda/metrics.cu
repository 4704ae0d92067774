#include "kernels/cuda/group.h"
#include "kernels/metrics.h"

namespace athanor::kernels {
namespace {

using cuda::kRowBlock;
using Row = cuda::RowShape<cuda::kWarp, 0, 1>;

/// How many of its rows each block finds right: a warp a row, one read of the logits (from cache, after the
/// loss), one comparison each.
template <class T>
__global__ void __launch_bounds__(kRowBlock)
    count_correct(const T* logits, const std::int64_t* target, std::int64_t rows, std::int64_t n,
                  std::int64_t* counts) {
  using A = Accumulate<T>;
  std::int64_t correct = 0;
  for (std::int64_t row = Row::first(); row < rows; row += Row::step()) {
    const std::int64_t label = target[row];
    if (label < 0 || label >= n) continue;
    const T* x = logits + row * n;
    const A best = A(x[label]);
    bool first = true;
#pragma unroll 4
    for (std::int64_t c = Row::rank(); c < n; c += Row::threads)
      first &= c < label ? best > A(x[c]) : best >= A(x[c]);  // false for a NaN
    correct += __ballot_sync(cuda::kWholeWarp, first) == cuda::kWholeWarp;
  }
  correct = cuda::group_sum<kRowBlock>(Row::rank() == 0 ? correct : 0);
  if (threadIdx.x == 0) counts[blockIdx.x] = correct;
}

template <class A>
__global__ void __launch_bounds__(kRowBlock)
    add_totals(const A* loss, const std::int64_t* counts, int blocks, double rows, double* totals) {
  std::int64_t correct = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kRowBlock) correct += counts[i];
  correct = cuda::group_sum<kRowBlock>(correct);
  if (threadIdx.x != 0) return;
  totals[0] += rows * static_cast<double>(*loss);
  totals[1] += static_cast<double>(correct);
  totals[2] += rows;
}

}  // namespace

template <>
void add_metrics(CudaContext& context, const Tensor& loss, const Tensor& logits, const Tensor& target,
                 const Tensor& totals) {
  const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
  const unsigned blocks = cuda::row_blocks<Row>(context, rows);
  const Scratch scratch = context.scratch(blocks * sizeof(std::int64_t));
  auto* counts = scratch.as<std::int64_t>();
  dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    cuda::launch(context, {"metrics", blocks, kRowBlock}, count_correct<T>, logits.data<T>(),
                 target.data<std::int64_t>(), rows, n, counts);
  });
  const auto add = [&]<class A>() {
    cuda::launch(context, {"metrics", 1, kRowBlock}, add_totals<A>, loss.data<A>(), counts, blocks, rows,
                 totals.data<double>());
  };
  if (loss.dtype() == DType::f64) return add.template operator()<double>();
  add.template operator()<float>();
}

}  // namespace athanor::kernels
