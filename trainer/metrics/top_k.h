#pragma once

#include "trainer/metrics/metric.h"

namespace athanor {

/// The share of samples whose target is among the k likeliest classes, exact: their number, and that of
/// samples.
struct TopKAccuracy final : Metric {
  explicit TopKAccuracy(std::int64_t count) : k(count) {}

  Kind kind() const override { return {"top", k}; }
  std::int64_t size() const override { return 2; }
  /// logits [N, C] floating; target [N] i64. Ties and rows with a NaN as in kernels::add_top_k().
  void add(const MetricTotals& to, const Tensor& logits, const Tensor& target) const;
  std::int64_t values(std::string_view name, std::span<const double> sums, const Emit& emit) const override;

  std::int64_t k;
};

}  // namespace athanor
