#include <algorithm>

#include "kernels/cuda/context.h"
#include "kernels/cuda/group.h"
#include "kernels/metrics.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cuda::kRowBlock;
using Row = cuda::RowShape<cuda::kWarp, 0, 1>;

/// Whether fewer than `most` of a row's n logits are likelier than that of `label`, for a warp: one read
/// (from cache, after the loss), one comparison each. Of equal ones the first is; none is among numbers and
/// NaN.
template <class T>
__device__ __forceinline__ bool is_among(const T* x, std::int64_t n, std::int64_t label, std::int64_t most) {
  using A = Accumulate<T>;
  if (label < 0 || label >= n) return false;
  const A best = A(x[label]);
  std::int64_t likelier = 0;
  bool numbers = true;
#pragma unroll 4
  for (std::int64_t c = Row::rank(); c < n; c += Row::threads) {
    const A one = A(x[c]);
    likelier += is_likelier(one, c, best, label);
    numbers &= one == one;
  }
  likelier = cuda::warp_fold(likelier, cuda::Plus{});
  return likelier < most && __ballot_sync(cuda::kWholeWarp, numbers) == cuda::kWholeWarp;
}

/// How many of its rows each block finds right, and their losses.
template <class T>
__global__ void __launch_bounds__(kRowBlock)
    count_correct(const T* logits, const std::int64_t* target, const Accumulate<T>* losses, std::int64_t rows,
                  std::int64_t n, std::int64_t* counts, double* sums) {
  std::int64_t correct = 0;
  double sum = 0;
  for (std::int64_t row = Row::first(); row < rows; row += Row::step()) {
    sum += quantized_loss(losses[row]);
    correct += is_among(logits + row * n, n, target[row], 1);
  }
  correct = cuda::group_sum<kRowBlock>(Row::rank() == 0 ? correct : 0);
  sum = cuda::group_sum<kRowBlock>(Row::rank() == 0 ? sum : 0);
  if (threadIdx.x != 0) return;
  counts[blockIdx.x] = correct;
  sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kRowBlock)
    add_totals(const std::int64_t* counts, const double* sums, int blocks, double rows, double* totals) {
  std::int64_t correct = 0;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kRowBlock) {
    correct += counts[i];
    sum += sums[i];
  }
  correct = cuda::group_sum<kRowBlock>(correct);
  sum = cuda::group_sum<kRowBlock>(sum);
  if (threadIdx.x != 0) return;
  totals[0] += sum;
  totals[1] += static_cast<double>(correct);
  totals[2] += rows;
}

/// One block: values that are logged are few.
template <class T>
__global__ void __launch_bounds__(kRowBlock)
    add_values(const T* values, std::int64_t count, double weight, MetricReduce reduce, double* total) {
  const JoinMetric join{reduce};
  double mine = join.none();
  for (auto i = static_cast<std::int64_t>(threadIdx.x); i < count; i += kRowBlock)
    mine = join(mine, join.counted(static_cast<double>(Accumulate<T>(values[i]))));
  const double value = cuda::group_fold<kRowBlock>(mine, join);
  if (threadIdx.x == 0) update_metric(total, value, count, weight, reduce);
}

/// Counts are whole numbers: in any order, f64 adds them exactly.
template <class T>
__global__ void __launch_bounds__(kRowBlock)
    count_among(const T* logits, const std::int64_t* target, std::int64_t rows, std::int64_t n,
                std::int64_t most, double* total) {
  std::int64_t right = 0;
  for (std::int64_t row = Row::first(); row < rows; row += Row::step())
    right += is_among(logits + row * n, n, target[row], most);
  right = cuda::group_sum<kRowBlock>(Row::rank() == 0 ? right : 0);
  if (threadIdx.x != 0) return;
  atomicAdd(total, static_cast<double>(right));
  if (blockIdx.x == 0) atomicAdd(total + 1, static_cast<double>(rows));
}

__global__ void __launch_bounds__(kRowBlock)
    count_pairs(const std::int64_t* predicted, const std::int64_t* target, std::int64_t count,
                std::int64_t classes, double* counts) {
  const auto step = static_cast<std::int64_t>(gridDim.x) * kRowBlock;
  for (auto i = static_cast<std::int64_t>(blockIdx.x) * kRowBlock + threadIdx.x; i < count; i += step) {
    const std::int64_t is = target[i], says = predicted[i];
    if (is < 0 || is >= classes || says < 0 || says >= classes) continue;
    atomicAdd(counts + is * classes + says, 1.0);
  }
}

/// A thread for each number.
__global__ void __launch_bounds__(kRowBlock)
    keep(const double* prediction, const double* target, const std::int64_t* at, std::int64_t count,
         std::int64_t columns, std::int64_t rows, double* table) {
  const auto step = static_cast<std::int64_t>(gridDim.x) * kRowBlock;
  for (auto i = static_cast<std::int64_t>(blockIdx.x) * kRowBlock + threadIdx.x; i < count; i += step) {
    const std::int64_t column = i % columns, row = at[i / columns];
    if (row < 0 || row >= rows) continue;
    double* to = table + row * (1 + 2 * columns);
    if (column == 0) to[0] = 1;
    to[1 + column] = prediction[i];
    to[1 + columns + column] = target[i];
  }
}

/// Of grid-stride loops over single elements.
unsigned few_blocks(std::int64_t count) {
  constexpr std::int64_t kMaxBlocks = 1024;
  return static_cast<unsigned>(std::min((count + kRowBlock - 1) / kRowBlock, kMaxBlocks));
}

}  // namespace

void add_metrics(CudaContext& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 Out totals) {
  const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
  const unsigned blocks = cuda::row_blocks<Row>(context, rows);
  const Scratch of_counts = context.scratch(blocks * sizeof(std::int64_t)),
                of_sums = context.scratch(blocks * sizeof(double));
  auto* counts = of_counts.as<std::int64_t>();
  auto* sums = of_sums.as<double>();
  dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    cuda::launch(context, {"metrics", blocks, kRowBlock}, count_correct<T>, logits.data<T>(),
                 target.data<std::int64_t>(), static_cast<const Accumulate<T>*>(losses.data<Accumulate<T>>()),
                 rows, n, counts, sums);
  });
  cuda::launch(context, {"metrics", 1, kRowBlock}, add_totals, counts, sums, blocks, rows,
               totals.data<double>());
}

void add_metric(CudaContext& context, const Tensor& values, double weight, MetricReduce reduce, Out total) {
  dispatch_floating(values.dtype(), "metrics", [&]<class T>() {
    cuda::launch(context, {"metrics", 1, kRowBlock}, add_values<T>, static_cast<const T*>(values.data<T>()),
                 values.numel(), weight, reduce, total.data<double>());
  });
}

void add_top_k(CudaContext& context, const Tensor& logits, const Tensor& target, std::int64_t k, Out total) {
  const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
  if (rows == 0) return;
  dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    cuda::launch(context, {"metrics", cuda::row_blocks<Row>(context, rows), kRowBlock}, count_among<T>,
                 logits.data<T>(), target.data<std::int64_t>(), rows, n, k, total.data<double>());
  });
}

void add_confusion(CudaContext& context, const Tensor& predicted, const Tensor& target, Out counts) {
  if (target.numel() == 0) return;
  cuda::launch(context, {"metrics", few_blocks(target.numel()), kRowBlock}, count_pairs,
               predicted.data<std::int64_t>(), target.data<std::int64_t>(), target.numel(), counts.shape()[0],
               counts.data<double>());
}

void keep_rows(CudaContext& context, const Tensor& prediction, const Tensor& target, const Tensor& at,
               Out table) {
  const std::int64_t count = prediction.numel();
  if (count == 0) return;
  cuda::launch(context, {"metrics", few_blocks(count), kRowBlock}, keep,
               static_cast<const double*>(prediction.data<double>()),
               static_cast<const double*>(target.data<double>()),
               static_cast<const std::int64_t*>(at.data<std::int64_t>()), count, prediction.shape()[1],
               table.shape()[0], table.data<double>());
}

}  // namespace athanor::kernels
