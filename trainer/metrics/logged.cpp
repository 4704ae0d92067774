#include "trainer/metrics/logged.h"

#include "autograd/detail/dense.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

bool of_extremes(MetricReduce reduce) {
  return reduce == MetricReduce::min || reduce == MetricReduce::max;
}

}  // namespace

Metric::Kind Logged::kind() const {
  constexpr std::string_view kNames[]{"mean", "sum", "min", "max", "exact"};
  return {kNames[static_cast<std::size_t>(reduce)]};
}

void Logged::add(const MetricTotals& to, const Tensor& values, std::int64_t samples) const {
  ATH_CHECK(values.defined() && is_floating(values.dtype()) && values.device() == to.sums.device(),
            "log: '{}' must be a floating tensor on {}, but is {}", to.name, to.sums.device().str(),
            values.defined() ? fmt::format("{} on {}", values.dtype(), values.device().str()) : "none");
  if (samples == 0 || values.numel() == 0) return;  // a rank without samples in this batch
  on_device(values.device(), [&](auto& context) {
    kernels::add_metric(context, dense(values.detach()), static_cast<double>(samples), reduce, to.sums);
  });
}

std::int64_t Logged::values(std::string_view name, std::span<const double> sums, const Emit& emit) const {
  const bool averages = reduce == MetricReduce::mean || reduce == MetricReduce::exact;
  if (sums[1] > 0) emit(name, averages ? sums[0] / sums[1] : sums[0]);
  return reduce == MetricReduce::mean ? static_cast<std::int64_t>(sums[1]) : 0;
}

void Logged::join(std::span<double> sums, std::span<const double> others) const {
  if (!of_extremes(reduce)) return Metric::join(sums, others);
  if (others[1] > 0) sums[0] = sums[1] > 0 ? kernels::JoinMetric{reduce}(sums[0], others[0]) : others[0];
  sums[1] += others[1];
}

// The extreme of a step is not known, that of the epoch so far is.
void Logged::subtract(std::span<double> sums, std::span<const double> before) const {
  if (!of_extremes(reduce)) sums[0] -= before[0];
  sums[1] -= before[1];
}

}  // namespace athanor
