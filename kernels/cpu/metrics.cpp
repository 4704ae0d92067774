#include "kernels/metrics.h"

#include <algorithm>

#include "kernels/cpu/context.h"

namespace athanor::kernels {

namespace {

/// The number of rows of logits [N, C] whose label has fewer than k likelier classes. A row with a NaN counts
/// as wrong.
std::int64_t count_right(const Tensor& logits, const Tensor& target, std::int64_t k) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  const auto* label = target.data<std::int64_t>();
  return dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    using A = Accumulate<T>;
    const T* row = logits.data<T>();
    std::int64_t right = 0;
    for (std::int64_t n = 0; n < rows; ++n, row += classes) {
      if (label[n] < 0 || label[n] >= classes) continue;
      const A best = A(row[label[n]]);
      std::int64_t likelier = 0, numbers = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const A x = A(row[c]);
        likelier += is_likelier(x, c, best, label[n]);
        numbers += x == x;
      }
      right += likelier < k && numbers == classes;
    }
    return right;
  });
}

}  // namespace

void add_metrics(CpuContext&, const Tensor& losses, const Tensor& logits, const Tensor& target, Out totals) {
  const std::int64_t rows = logits.dim(0);
  double sum = 0;
  const auto add = [&]<class A>() {
    const A* loss = losses.data<A>();
    for (std::int64_t n = 0; n < rows; ++n) sum += quantized_loss(loss[n]);
  };
  losses.dtype() == DType::f64 ? add.template operator()<double>() : add.template operator()<float>();
  double* total = totals.data<double>();
  total[0] += sum;
  total[1] += static_cast<double>(count_right(logits, target, 1));
  total[2] += static_cast<double>(rows);
}

void add_metric(CpuContext&, const Tensor& values, double weight, MetricReduce reduce, Out total) {
  const JoinMetric join{reduce};
  double value = join.none();
  dispatch_floating(values.dtype(), "metrics", [&]<class T>() {
    const T* at = values.data<T>();
    for (std::int64_t i = 0; i < values.numel(); ++i)
      value = join(value, join.counted(static_cast<double>(Accumulate<T>(at[i]))));
  });
  update_metric(total.data<double>(), value, values.numel(), weight, reduce);
}

void add_top_k(CpuContext&, const Tensor& logits, const Tensor& target, std::int64_t k, Out total) {
  double* to = total.data<double>();
  to[0] += static_cast<double>(count_right(logits, target, k));
  to[1] += static_cast<double>(logits.dim(0));
}

void add_confusion(CpuContext&, const Tensor& predicted, const Tensor& target, Out counts) {
  const std::int64_t classes = counts.shape()[0];
  const auto *says = predicted.data<std::int64_t>(), *is = target.data<std::int64_t>();
  double* to = counts.data<double>();
  for (std::int64_t i = 0; i < target.numel(); ++i) {
    if (is[i] < 0 || is[i] >= classes || says[i] < 0 || says[i] >= classes) continue;
    to[is[i] * classes + says[i]] += 1;
  }
}

void keep_rows(CpuContext&, const Tensor& prediction, const Tensor& target, const Tensor& at, Out table) {
  const std::int64_t columns = prediction.dim(1), rows = table.shape()[0];
  const auto* place = at.data<std::int64_t>();
  const auto *says = prediction.data<double>(), *is = target.data<double>();
  for (std::int64_t n = 0; n < at.numel(); ++n, says += columns, is += columns) {
    if (place[n] < 0 || place[n] >= rows) continue;
    double* to = table.data<double>() + place[n] * (1 + 2 * columns);
    *to++ = 1;
    to = std::copy_n(says, columns, to);
    std::copy_n(is, columns, to);
  }
}

}  // namespace athanor::kernels
