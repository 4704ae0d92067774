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
            const std::size_t height = rows(size), width = cols(size);
            for (std::size_t i = 0; i < height; ++i) {
              for (std::size_t j = 0; j < width; ++j) y[j * height + i] = x[0][i * width + j];
            }
            return y;
          },
  };
}
