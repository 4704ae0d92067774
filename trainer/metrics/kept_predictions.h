#pragma once

#include <cstdint>
#include <vector>

#include "trainer/metrics/metric.h"

namespace athanor {

/// Predictions and targets of some samples, column by column: of each class, or value.
struct PredictedColumns {
  std::vector<std::vector<double>> predictions, targets;
};

/// What the network says of each sample of a validation, and what is true: for figures that are no sums over
/// samples, such as average precision. They stay in the sample's place, so that the figures are the same for
/// any division of samples into batches and ranks. Takes 16 bytes for each number on the
/// device (MetricSums has a copy) and, at the end, 8 on the host for those of all ranks.
class KeptPredictions : public Metric {
 public:
  /// Of at most so many samples. Throws ArgumentError if one of the two is below 1.
  KeptPredictions(std::int64_t samples, std::int64_t columns);

  std::int64_t size() const final { return samples_ * width(); }
  bool in_steps() const final { return false; }
  /// prediction and target [N, columns] floating; samples [N] i64: their numbers, in [0, samples).
  void add(const MetricTotals& to, const Tensor& prediction, const Tensor& target,
           const Tensor& samples) const;
  std::int64_t values(std::string_view name, std::span<const double> sums, const Emit& emit) const final;
  void join(std::span<double> sums, std::span<const double> others) const final;

 protected:
  Kind kind_named(const char* name) const { return {name, samples_, columns_}; }
  /// The figures of those samples that were measured, at least one.
  virtual void figures(const PredictedColumns& measured, const Emit& emit) const = 0;

 private:
  /// Of a row: 1 if it was measured, the predictions, the targets.
  std::int64_t width() const { return 1 + 2 * columns_; }

  std::int64_t samples_, columns_;
};

}  // namespace athanor
