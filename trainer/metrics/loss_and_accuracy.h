#pragma once

#include "trainer/metrics/metric.h"

namespace athanor {

/// The "loss" and "accuracy" of a classifier, exact: with the same bits for any division of samples into
/// batches and ranks (kernels/metrics.h). Sums of losses, right answers and samples.
struct LossAndAccuracy final : Metric {
  Kind kind() const override { return {"loss_and_accuracy"}; }
  std::int64_t size() const override { return 3; }
  /// losses [N] f32, one per sample (f64 for f64 logits); logits [N, C]; target [N] i64.
  void add(const MetricTotals& to, const Tensor& losses, const Tensor& logits, const Tensor& target) const;
  std::int64_t values(std::string_view name, std::span<const double> sums, const Emit& emit) const override;
};

}  // namespace athanor
