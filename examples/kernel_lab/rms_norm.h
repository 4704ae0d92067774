#pragma once

#include <cmath>

#include "lab.h"

// RMS norm: y[i][j] = x[i][j] w[j] / sqrt(mean over j of x[i][j]^2 + eps).
// Source: Zhang and Sennrich 2019, arXiv:1910.07467.

constexpr float kEps = 1e-6f;

lab::Task lab::task() {
  return {
      .formula = "y[i][j] = x[i][j] w[j] / sqrt(mean(x[i]^2) + eps)",
      .sizes = {{1, 1}, {3, 33}, {70, 100}, {64, 1024}},
      .large = {65536, 1024},
      .inputs = {all, cols},
      .result = all,
      .reference =
          [](Size size, Arrays x) {
            std::vector<double> y(all(size));
            const std::size_t n = cols(size);
            for (std::size_t i = 0; i < rows(size); ++i) {
              const float* row = x[0].data() + i * n;
              double squares = 0;
              for (std::size_t j = 0; j < n; ++j) squares += double{row[j]} * row[j];
              const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
              for (std::size_t j = 0; j < n; ++j) y[i * n + j] = row[j] * scale * x[1][j];
            }
            return y;
          },
      .tolerance = 2e-6,
  };
}
