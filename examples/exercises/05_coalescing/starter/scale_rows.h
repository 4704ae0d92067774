#pragma once

#include <algorithm>
#include <cmath>

#include "lab.h"

// y[i][j] = x[i][j] / max over j of |x[i][j]|.

namespace scale_rows_task {

inline std::vector<double> divided(lab::Size size, lab::Arrays x, std::size_t looks_at, bool absolute) {
  const std::size_t n = lab::cols(size);
  std::vector<double> y(lab::all(size));
  for (std::size_t i = 0; i < lab::rows(size); ++i) {
    const float* row = x[0].data() + i * n;
    double largest = 0;
    for (std::size_t j = 0; j < std::min(n, looks_at); ++j)
      largest = std::max(largest, absolute ? std::fabs(double{row[j]}) : double{row[j]});
    for (std::size_t j = 0; j < n; ++j) y[i * n + j] = largest == 0 ? 0 : row[j] / largest;
  }
  return y;
}

}  // namespace scale_rows_task

lab::Task lab::task() {
  using scale_rows_task::divided;
  return {
      .formula = "y[i][j] = x[i][j] / max |x[i]|",
      .sizes = {{1, 1}, {3, 33}, {70, 100}, {64, 1024}},
      .large = {65536, 1024},
      .inputs = {all},
      .result = all,
      .reference = [](Size size, Arrays x) { return divided(size, x, cols(size), true); },
      .tolerance = 1e-6,
      .mistakes = {{"only the first 32 columns were searched for the maximum",
                    [](Size size, Arrays x) { return divided(size, x, 32, true); }},
                   {"the maximum is not of the absolute values",
                    [](Size size, Arrays x) { return divided(size, x, cols(size), false); }}},
  };
}
