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
    for (std::int64_t n = 0; n < rows; ++n) sum += counted_loss(loss[n]);
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
      value = join(value, static_cast<double>(Accumulate<T>(at[i])));
  });
  update_metric(total.data<double>(), value, values.numel(), weight, reduce);
}

}  // namespace athanor::kernels
