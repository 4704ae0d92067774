#pragma once

#include "kernels/metrics.h"
#include "trainer/metrics/metric.h"

namespace athanor {

/// Logged values, combined by their reduction: a total, and its weight or the number of values.
struct Logged final : Metric {
  explicit Logged(MetricReduce how) : reduce(how) {}

  Kind kind() const override;
  std::int64_t size() const override { return 2; }
  /// values: floating, one or more, as kernels::add_metric() takes them; those of no samples do not count.
  void add(const MetricTotals& to, const Tensor& values, std::int64_t samples) const;
  std::int64_t values(std::string_view name, std::span<const double> sums, const Emit& emit) const override;
  void join(std::span<double> sums, std::span<const double> others) const override;
  void subtract(std::span<double> sums, std::span<const double> before) const override;

  MetricReduce reduce;
};

}  // namespace athanor
