#pragma once

#include <span>

#include "trainer/metrics/kept_predictions.h"

namespace athanor {

/// How well numbers are predicted, in their unit.
struct NumberFigures {
  double mae = 0;   ///< mean of |prediction - target|
  double rmse = 0;  ///< root of the mean of their squares
  /// 1 - sum of squared errors / sum of squared differences of targets from their mean: 1 is perfect, 0 is
  /// what the mean gives. Of equal targets: 1 if all are met, else 0.
  double r2 = 0;
};
/// predictions and targets: as many, at least one. Sums in f64. Source: as r2_score() of scikit-learn.
NumberFigures figures_of(std::span<const double> predictions, std::span<const double> targets);

/// Of a network of numbers: mae, rmse and r2, the mean over columns; with several also each one's, as mae/0.
class NumberErrors final : public KeptPredictions {
 public:
  using KeptPredictions::KeptPredictions;
  Kind kind() const override { return kind_named("number_errors"); }

 private:
  void figures(const PredictedColumns& measured, const Emit& emit) const override;
};

}  // namespace athanor
