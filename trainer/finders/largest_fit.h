#pragma once

#include <algorithm>
#include <cstdint>

namespace athanor {

/// The largest number that `fits`, within a sixteenth; 0: none. `fit` fits (0: none known), `unfit` does not.
/// Halves until one fits, then bisects. Numbers below a fitting one must fit too.
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
