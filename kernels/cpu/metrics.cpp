#include "kernels/metrics.h"

namespace athanor::kernels {

template <>
void add_metrics(CpuContext&, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 const Tensor& totals) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const auto* label = target.data<std::int64_t>();
  std::int64_t correct = 0;
  dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    using A = Accumulate<T>;
    const T* row = logits.data<T>();
    for (std::int64_t n = 0; n < rows; ++n, row += classes) {
      if (label[n] < 0 || label[n] >= classes) continue;
      const A best = A(row[label[n]]);
      bool first = true;
      for (std::int64_t c = 0; c < classes; ++c) {
        first &= c < label[n] ? best > A(row[c]) : best >= A(row[c]);  // false for a NaN
      }
      correct += first;
    }
  });
  double sum = 0;
  const auto add = [&]<class A>() {
    const A* loss = losses.data<A>();
    for (std::int64_t n = 0; n < rows; ++n) sum += quantized_loss(loss[n]);
  };
  losses.dtype() == DType::f64 ? add.template operator()<double>() : add.template operator()<float>();
  double* total = totals.data<double>();
  total[0] += sum;
  total[1] += static_cast<double>(correct);
  total[2] += static_cast<double>(rows);
}

template <>
void add_metric(CpuContext&, const Tensor& values, double weight, MetricReduce reduce, const Tensor& total) {
  const JoinMetric join{reduce};
  double value = join.none();
  dispatch_floating(values.dtype(), "metrics", [&]<class T>() {
    const T* at = values.data<T>();
    for (std::int64_t i = 0; i < values.numel(); ++i)
      value = join(value, join.counted(static_cast<double>(Accumulate<T>(at[i]))));
  });
  update_metric(total.data<double>(), value, values.numel(), weight, reduce);
}

template <>
void add_top_k(CpuContext&, const Tensor& logits, const Tensor& target, std::int64_t k, const Tensor& total) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const auto* label = target.data<std::int64_t>();
  std::int64_t right = 0;
  dispatch_floating(logits.dtype(), "metrics", [&]<class T>() {
    using A = Accumulate<T>;
    const T* row = logits.data<T>();
    for (std::int64_t n = 0; n < rows; ++n, row += classes) {
      if (label[n] < 0 || label[n] >= classes) continue;
      const A best = A(row[label[n]]);
      std::int64_t likelier = 0, numbers = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const A x = A(row[c]);
        likelier += c < label[n] ? x >= best : x > best;
        numbers += x == x;
      }
      right += likelier < k && numbers == classes;
    }
  });
  double* to = total.data<double>();
  to[0] += static_cast<double>(right);
  to[1] += static_cast<double>(rows);
}

template <>
void add_confusion(CpuContext&, const Tensor& predicted, const Tensor& target, const Tensor& counts) {
  const std::int64_t classes = counts.shape()[0];
  const auto *says = predicted.data<std::int64_t>(), *is = target.data<std::int64_t>();
  double* to = counts.data<double>();
  for (std::int64_t i = 0; i < target.numel(); ++i) {
    if (is[i] < 0 || is[i] >= classes || says[i] < 0 || says[i] >= classes) continue;
    to[is[i] * classes + says[i]] += 1;
  }
}

}  // namespace athanor::kernels
