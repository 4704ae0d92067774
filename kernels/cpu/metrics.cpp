#include "kernels/metrics.h"

namespace athanor::kernels {

template <>
void add_metrics(CpuContext&, const Tensor& loss, const Tensor& logits, const Tensor& target,
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
  const auto n = static_cast<double>(rows);
  double* total = totals.data<double>();
  total[0] +=
      n * (loss.dtype() == DType::f64 ? *loss.data<double>() : static_cast<double>(*loss.data<float>()));
  total[1] += static_cast<double>(correct);
  total[2] += n;
}

}  // namespace athanor::kernels
