#pragma once

#include <algorithm>
#include <cstdint>

namespace athanor::detail {

/// Maps positions in an epoch's order to steps and ranks. Positions count over all ranks, so a step has the
/// same samples for any number of ranks; a rank's rows of a step are adjacent. Pure arithmetic: every rank
/// knows the whole plan before the first read.
struct BatchPlan {
  std::int64_t samples = 1;
  std::int64_t batch = 1;  ///< over all ranks, at most `samples`
  int rank = 0, world_size = 1;
  bool drop_last = false;

  struct Rows {
    std::int64_t first = 0, count = 0;
  };
  struct Position {
    std::int64_t epoch = 0;  ///< relative to the first ticket's epoch
    std::int64_t step = 0, row = 0;
  };

  /// Samples per epoch, over all ranks.
  std::int64_t delivered() const { return drop_last ? samples - samples % batch : samples; }
  std::int64_t steps() const { return (delivered() + batch - 1) / batch; }
  /// Positions of this rank's rows in a step. Ranks differ by at most one row; the first ranks have more.
  Rows rows_of(std::int64_t step) const {
    const std::int64_t begin = step * batch, whole = std::min(batch, delivered() - begin);
    const std::int64_t each = whole / world_size, more = whole % world_size;
    return {begin + rank * each + std::min<std::int64_t>(rank, more), each + (rank < more ? 1 : 0)};
  }
  /// This rank's maximum number of rows in a step.
  std::int64_t rows() const { return rows_of(0).count; }
  /// Number of this rank's rows in the steps before `step` of an epoch.
  std::int64_t rows_before(std::int64_t step) const {
    if (step == 0) return 0;
    return (step - 1) * rows() + rows_of(step - 1).count;
  }
  /// The position of this rank's row `ticket`, counted from the beginning of an epoch over all epochs. Needs
  /// rows() > 0.
  Position position(std::int64_t ticket) const {
    // Never 0, but the static analyser cannot see that.
    const std::int64_t each = std::max<std::int64_t>(rows_before(steps()), 1);
    const std::int64_t at = ticket % each, step = std::min(at / rows(), steps() - 1);
    return {ticket / each, step, at - rows_before(step)};
  }
};

}  // namespace athanor::detail
