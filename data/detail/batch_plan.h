#pragma once

#include <algorithm>
#include <cstdint>

namespace athanor::detail {

/// Which positions of an epoch's order make up which step, and which rank reads them. Position is a place in
/// the order of all ranks together, so that a step has the same samples for any number of ranks; a rank's
/// rows of a step lie side by side. Arithmetic only: every rank knows all of it before the first read.
struct BatchPlan {
  std::int64_t samples = 1;
  std::int64_t batch = 1;  ///< of all ranks together, at most `samples`
  int rank = 0, world_size = 1;
  bool drop_last = false;

  struct Rows {
    std::int64_t first = 0, count = 0;
  };
  struct Position {
    std::int64_t epoch = 0;  ///< counted from the first ticket's
    std::int64_t step = 0, row = 0;
  };

  /// Samples an epoch delivers, over all ranks.
  std::int64_t delivered() const { return drop_last ? samples - samples % batch : samples; }
  std::int64_t steps() const { return (delivered() + batch - 1) / batch; }
  /// The positions of this rank's rows in a step. Ranks differ by one row at most, the first have more.
  Rows rows_of(std::int64_t step) const {
    const std::int64_t begin = step * batch, whole = std::min(batch, delivered() - begin);
    const std::int64_t each = whole / world_size, more = whole % world_size;
    return {begin + rank * each + std::min<std::int64_t>(rank, more), each + (rank < more ? 1 : 0)};
  }
  /// The most rows this rank has in a step.
  std::int64_t rows() const { return rows_of(0).count; }
  /// This rank's rows in the steps before `step` of an epoch.
  std::int64_t rows_before(std::int64_t step) const {
    if (step == 0) return 0;
    return (step - 1) * rows() + rows_of(step - 1).count;
  }
  /// Where row `ticket` of this rank's lies, counted from the beginning of an epoch on, over all epochs.
  /// Needs rows() > 0.
  Position position(std::int64_t ticket) const {
    // Never 0, but the analyzer cannot see that.
    const std::int64_t each = std::max<std::int64_t>(rows_before(steps()), 1);
    const std::int64_t at = ticket % each, step = std::min(at / rows(), steps() - 1);
    return {ticket / each, step, at - rows_before(step)};
  }
};

}  // namespace athanor::detail
