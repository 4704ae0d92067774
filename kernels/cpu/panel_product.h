#pragma once

#include <cstdint>

// The product inside of convolutions that lay their filters out in panels of up to 32 columns. Only if
// has_avx2(); the bits are the same with AVX-512.

namespace athanor::cpu {

inline constexpr std::int64_t kPanelColumns = 32;

/// out[i][j] (+)= the sum over t < depth of x[i, t] w[t][j], added once complete.
struct PanelProduct {
  const float* x;
  std::int64_t row, next;  ///< from x[i, t] to x[i + 1, t] and x[i, t + 1]
  const float* w;
  std::int64_t depth;
  float* out;
  std::int64_t width;  ///< floats from a row of w and of out to the next: 16 or kPanelColumns
  bool accumulate;
  /// w comes from memory, and what follows it is needed next: fetch both early. (A CPU by itself fetches
  /// only up to the end of a page of 4 KB.)
  bool fetch_ahead;
};

/// Multiplies this many rows, rounded up to a multiple of 4, and columns: up to 16, or all 32 of the panel if
/// there are more.
void multiply_panel(PanelProduct product, std::int64_t rows, std::int64_t columns);

}  // namespace athanor::cpu
