#pragma once

#include "tensor/half.h"  // ATH_HD: for the host and the device

// The formulas, once for every device: x - lambda above lambda, x + lambda below -lambda, 0 between.

template <class T> ATH_HD T shrunk(T x, T lambda) {
  return x > lambda ? x - lambda : x < -lambda ? x + lambda : T(0);
}

/// d shrunk / dx.
template <class T> ATH_HD T shrunk_slope(T x, T lambda) {
  return x > lambda || x < -lambda ? T(1) : T(0);
}
