#pragma once

#include "lab.h"

// y[j][i] = x[i][j]: x is [rows, cols], y [cols, rows].

lab::Task lab::task() {
  return {
      .formula = "y[j][i] = x[i][j]",
      .sizes = {{1, 1}, {1, 70}, {33, 65}, {128, 128}},
      .large = {8192, 8192},
      .inputs = {all},
      .result = all,
      .reference =
          [](Size size, Arrays x) {
            std::vector<double> y(all(size));
            for (std::size_t i = 0; i < rows(size); ++i)
              for (std::size_t j = 0; j < cols(size); ++j) y[j * rows(size) + i] = x[0][i * cols(size) + j];
            return y;
          },
      .mistakes = {{"this is x itself, not transposed",
                    [](Size, Arrays x) { return std::vector<double>(x[0].begin(), x[0].end()); }}},
  };
}
