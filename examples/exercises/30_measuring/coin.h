#pragma once

#include <cmath>

/// The largest k such that fewer than k heads in `throws` have a probability of at most 2.5 %; 0: none.
inline int quantile_rank(int throws) {
  double probability = std::pow(0.5, throws), below = 0;
  int k = 0;
  while (below + probability <= 0.025) {
    below += probability;
    probability *= static_cast<double>(throws - k) / (k + 1);
    ++k;
  }
  return k;
}
