#include "trainer/metric_sums.h"

#include <limits>

#include "autograd/grad_mode.h"
#include "kernels/copy.h"
#include "kernels/metrics.h"
#include "optim/step.h"

namespace athanor {

MetricSums::MetricSums(Device device)
    : sums_(Tensor::zeros({static_cast<std::int64_t>(kSize)}, {DType::f64, device})),
      before_(empty_like(sums_)) {}

void MetricSums::clear() {
  on_device(sums_.device(), [&](auto& context) { kernels::fill(context, sums_, 0); });
}

void MetricSums::add(const Tensor& losses, const Tensor& logits, const Tensor& target) {
  const NoGrad no_grad;
  on_device(sums_.device(),
            [&](auto& context) { kernels::add_metrics(context, losses, logits, target, sums_); });
}

void MetricSums::restore_if_skipped(StepBuffer& step) {
  on_device(sums_.device(), [&](auto& context) {
    const BoundStep bound(context, step);
    kernels::copy_if_skipped(context, before_, sums_);
  });
}

void MetricSums::write(const std::vector<double>& sums) {
  sums_.copy_bytes_from(Tensor::from(sums, {static_cast<std::int64_t>(kSize)}).to(sums_.device()));
}

Metrics MetricSums::mean(std::span<const double> sums) {
  constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
  const double n = sums[2];
  if (n == 0) return {kNotMeasured, kNotMeasured, 0};
  return {sums[0] / n, sums[1] / n, static_cast<std::int64_t>(n)};
}

}  // namespace athanor
