#pragma once

#include "lab.h"

// y = a b^T: a is [rows, cols], b [cols, cols], y [rows, cols]; cols is a multiple of 4. The sum runs over
// cols, which both factors have along their rows. Tensor cores take a and b as tf32: 10 bits of a float's
// fraction instead of 23.

lab::Task lab::task() {
  return {
      .formula = "y[i][j] = sum over k of a[i][k] b[j][k]",
      .sizes = {{1, 4}, {70, 100}, {33, 132}, {128, 256}},
      .large = {8192, 8192},
      .inputs = {all, [](Size size) { return cols(size) * cols(size); }},
      .result = all,
      .reference =
          [](Size size, Arrays x) {
            std::vector<double> y(all(size));
            const std::size_t n = cols(size);
            for (std::size_t i = 0; i < rows(size); ++i) {
              for (std::size_t j = 0; j < n; ++j) {
                for (std::size_t k = 0; k < n; ++k) y[i * n + j] += double{x[0][i * n + k]} * x[1][j * n + k];
              }
            }
            return y;
          },
      .tolerance = 1e-2,  // of 256 products of numbers that are rounded to tf32
  };
}
