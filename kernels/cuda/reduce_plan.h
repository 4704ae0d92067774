#pragma once

#include <algorithm>

#include "kernels/cuda/launch_plan.h"
#include "kernels/reduce_plan.h"

// How a reduction is divided into units, by shape alone. Where there are several units to an output, they
// leave partial sums, which a second launch adds up.

namespace athanor::cuda {

inline constexpr int kReduceThreads = 256;
inline constexpr std::int64_t kReduceUnits =
    1024;  ///< wanted in all, not of the device: sums are the same on all

constexpr std::int64_t pieces(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of;
}

/// Elements that are read at once, of the `vector` in 16 bytes.
inline int reduce_width(const kernels::ReducePlan& plan, int vector) {
  const bool one_row = plan.inner_reduced && plan.reduced.rank == 0;
  return plan.inner.x == 1 && (one_row || plan.inner.size % vector == 0) ? vector : 1;
}

/// The innermost axis is reduced: an output's terms in one line, row after row, a unit of them at a time.
struct RowUnits {
  std::int64_t outputs, terms, unit = 0, units = 0;
  int threads;  ///< that share a unit: a warp sums few terms by itself

  RowUnits(const kernels::ReducePlan& plan, int width)
      : outputs(plan.kept.count()),
        terms(plan.reduced.count() * plan.inner.size),
        threads(terms <= 2048 ? kWarp : kReduceThreads) {
    const std::int64_t most = pieces(terms, std::int64_t{8} * threads * width);
    units = std::clamp<std::int64_t>(kReduceUnits / outputs, 1, most);
    unit = pieces(pieces(terms, units), width) * width;
    units = pieces(terms, unit);
  }
  std::int64_t partial_sums() const { return units > 1 ? outputs * units : 0; }
};

/// It is kept: rows of n columns, `vector` of them a thread. A block is `lanes` rows of `width` threads, over
/// a tile of columns and a unit of rows.
struct ColumnUnits {
  std::int64_t outputs, rows, n, tiles = 0, unit = 0, units = 0;
  int width = 0, lanes = 0;

  ColumnUnits(const kernels::ReducePlan& plan, int vector)
      : outputs(plan.kept.count()), rows(plan.reduced.count()), n(plan.inner.size) {
    const std::int64_t vectors = n / vector;
    tiles = pieces(vectors, kReduceThreads);
    width = static_cast<int>(pieces(vectors, tiles));
    lanes = kReduceThreads / width;
    units =
        std::clamp<std::int64_t>(kReduceUnits / (outputs * tiles), 1, pieces(rows, std::int64_t{8} * lanes));
    unit = pieces(rows, units);
    units = pieces(rows, unit);
  }
  std::int64_t partial_sums() const { return units > 1 ? outputs * units * n : 0; }
};

/// Partial sums, in f64, of a reduction of x to y; 0: one unit has all terms of an output.
inline std::int64_t reduce_partial_sums(const Tensor& x, const Tensor& y) {
  const kernels::ReducePlan plan(x, y);
  const int width = reduce_width(plan, static_cast<int>(16 / size_of(x.dtype())));
  return plan.inner_reduced ? RowUnits(plan, width).partial_sums() : ColumnUnits(plan, width).partial_sums();
}

}  // namespace athanor::cuda
