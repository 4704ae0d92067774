#pragma once

#include <cstdint>

#include "trainer/metrics/metric.h"

namespace athanor {

/// Results of a classifier for one class: a row, a column and the diagonal of a confusion matrix.
struct ClassFigures {
  std::int64_t images = 0;     ///< of this class: samples or pixels
  std::int64_t predicted = 0;  ///< predicted as this class
  std::int64_t right = 0;

  /// The share of predictions of this class that are right; NaN without any.
  double precision() const { return static_cast<double>(right) / static_cast<double>(predicted); }
  /// The share of this class's images that the model finds; NaN without any.
  double recall() const { return static_cast<double>(right) / static_cast<double>(images); }
  /// The harmonic mean of both (Dice); NaN without images and predictions.
  double f1() const { return 2 * static_cast<double>(right) / static_cast<double>(images + predicted); }
  /// Intersection over union (Jaccard); NaN without images and predictions.
  double iou() const { return static_cast<double>(right) / static_cast<double>(images + predicted - right); }
};

/// A confusion matrix [classes, classes] of targets and predictions, exact. Its values are NAME_accuracy and,
/// over classes that occur in either, the means NAME_precision, NAME_recall, NAME_f1 and NAME_iou; with
/// `each` also per class, as NAME_iou/3. Precision without predictions, and recall without targets, is 0.
struct Confusion final : Metric {
  /// Throws ArgumentError unless it has 1 to 4,096 classes.
  Confusion(std::int64_t count, bool of_each);

  Kind kind() const override { return {each ? "confusion_each" : "confusion", classes}; }
  std::int64_t size() const override { return classes * classes; }
  bool in_steps() const override { return false; }
  /// predicted and target: i64 of one shape. Pairs outside [0, classes) are ignored.
  void add(const MetricTotals& to, const Tensor& predicted, const Tensor& target) const;
  std::int64_t values(std::string_view name, std::span<const double> sums, const Emit& emit) const override;

  std::int64_t classes;
  bool each;
};

}  // namespace athanor
