#pragma once

#include <algorithm>
#include <cstdint>

namespace athanor {

/// The largest number that `fits`, to a sixteenth of it, where `fit` does (0: none is known) and `unfit` does
/// not: halves until one does, then bisects. 0: none does. What fits, less of it does, too.
template <class Fits> std::int64_t largest_that_fits(std::int64_t fit, std::int64_t unfit, const Fits& fits) {
  while (fit == 0 && unfit > 1) {
    const std::int64_t half = unfit / 2;
    (fits(half) ? fit : unfit) = half;
  }
  while (fit > 0 && unfit - fit > std::max<std::int64_t>(1, fit / 16)) {
    const std::int64_t middle = fit + (unfit - fit) / 2;
    (fits(middle) ? fit : unfit) = middle;
  }
  return fit;
}

}  // namespace athanor
