#pragma once

#include <cstdint>

namespace athanor {

/// What a classifier makes of one class: a row, a column and the diagonal of a confusion matrix.
struct ClassFigures {
  std::int64_t images = 0;     ///< that show it: samples, or pixels
  std::int64_t predicted = 0;  ///< that the model says show it
  std::int64_t right = 0;

  /// Of the images that the model says show it, the share that does; NaN where it says so of none.
  double precision() const { return static_cast<double>(right) / static_cast<double>(predicted); }
  /// Of the images that show it, the share that the model finds; NaN where there are none.
  double recall() const { return static_cast<double>(right) / static_cast<double>(images); }
  /// The harmonic mean of both (Dice); NaN where neither says so of any.
  double f1() const { return 2 * static_cast<double>(right) / static_cast<double>(images + predicted); }
  /// Intersection over union (Jaccard); NaN where neither says so of any.
  double iou() const { return static_cast<double>(right) / static_cast<double>(images + predicted - right); }
};

}  // namespace athanor
