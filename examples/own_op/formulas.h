#pragma once

// The formulas for every device: x - lambda above lambda, x + lambda below -lambda, 0 between. x - x is 0 for
// every number, but NaN for NaN, which must not be hidden.

#if defined(__CUDACC__)  // nvcc
#define OWN_OP_HD __host__ __device__
#else
#define OWN_OP_HD
#endif

template <class T> OWN_OP_HD T shrunk(T x, T lambda) {
  return x > lambda ? x - lambda : x < -lambda ? x + lambda : x - x;
}

/// d shrunk / dx.
template <class T> OWN_OP_HD T shrunk_slope(T x, T lambda) {
  return x > lambda || x < -lambda ? T(1) : T(0);
}
