#pragma once

#include <cstdint>

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

}  // namespace athanor
