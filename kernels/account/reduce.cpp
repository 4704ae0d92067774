#include "kernels/reduce.h"

#include "kernels/account/detail/cost.h"
#include "kernels/detail/axis_shape.h"
#include "kernels/extremum.h"
#include "kernels/reduce_plan.h"
#include "kernels/softmax.h"
#include "kernels/topk.h"

namespace athanor::kernels {

using account::bytes;
using account::launch;
using account::map;
using account::pieces;

namespace {

/// Partial sums of all units, in f64; 0 where one unit has all terms of an output. As kernels/cuda/reduce.cu
/// cuts them: by shape alone.
std::int64_t partial_bytes(const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kUnits = 1024, kThreads = 256;
  const ReducePlan plan(x, y);
  const std::int64_t vector = account::per_vector(x.dtype()), outputs = plan.kept.count();
  const bool one_row = plan.inner_reduced && plan.reduced.rank == 0;
  const std::int64_t width = plan.inner.x == 1 && (one_row || plan.inner.size % vector == 0) ? vector : 1;
  if (plan.inner_reduced) {
    const std::int64_t terms = plan.reduced.count() * plan.inner.size,
                       threads = terms <= 2048 ? 32 : kThreads;
    std::int64_t units = std::clamp<std::int64_t>(kUnits / outputs, 1, pieces(terms, 8 * threads * width));
    units = pieces(terms, pieces(pieces(terms, units), width) * width);
    return units > 1 ? outputs * units * 8 : 0;
  }
  const std::int64_t rows = plan.reduced.count(), vectors = plan.inner.size / width,
                     tiles = pieces(vectors, kThreads), lanes = kThreads / pieces(vectors, tiles);
  std::int64_t units = std::clamp<std::int64_t>(kUnits / (outputs * tiles), 1, pieces(rows, 8 * lanes));
  units = pieces(rows, pieces(rows, units));
  return units > 1 ? outputs * units * plan.inner.size * 8 : 0;
}

void reduce(AccountContext& context, const char* kernel, const Tensor& x, const Tensor& y, std::int64_t mean,
            bool adds) {
  const std::int64_t before = adds ? bytes(y) : 0, partial = x.numel() > 0 ? partial_bytes(x, y) : 0;
  launch(context, kernel, bytes(x) + mean + (partial == 0 ? before : 0), partial == 0 ? bytes(y) : partial);
  if (partial > 0) launch(context, kernel, partial + before, bytes(y));
}

}  // namespace

template <> void sum(AccountContext& context, const Tensor& x, const Tensor& y, double, Write write) {
  reduce(context, "sum", x, y, 0, write == Write::accumulate);
}
template <>
void squared_deviation(AccountContext& context, const Tensor& x, const Tensor& mean, const Tensor& y,
                       double) {
  reduce(context, "var", x, y, bytes(mean), false);
}
template <>
void squared_deviation_backward(AccountContext& context, const Tensor& x, const Tensor& mean,
                                const Tensor& dy, const Tensor& dx, double) {
  map(context, "var_backward", bytes(x) + bytes(mean) + bytes(dy), dx);
}
template <> std::int64_t count_nonfinite(AccountContext& context, const Tensor& x) {
  account::exact_total(context, "count_nonfinite", x);
  return 0;
}

template <>
void max(AccountContext& context, const Tensor& x, int, const Tensor& values, const Tensor& index) {
  if (x.numel() > 0) launch(context, "max", bytes(x), bytes(values) + bytes(index));
}
template <>
void max_backward(AccountContext& context, const Tensor& index, const Tensor& dy, int, const Tensor& dx) {
  map(context, "max_backward", bytes(index) + bytes(dy), dx);
}

template <>
void softmax_forward(AccountContext& context, SoftmaxForm, const Tensor& x, int, const Tensor& y) {
  map(context, "softmax", bytes(x), y);
}
template <>
void softmax_backward(AccountContext& context, SoftmaxForm, const Tensor& y, const Tensor& dy, int,
                      const Tensor& dx) {
  map(context, "softmax_backward", bytes(y, dy), dx);
}

template <>
void topk(AccountContext& context, const Tensor& x, int axis, bool, const Tensor& values,
          const Tensor& index) {
  const AxisShape in(x.shape(), axis);
  if (in.outer * in.inner > 0) launch(context, "topk", bytes(x), bytes(values) + bytes(index));
}

}  // namespace athanor::kernels
