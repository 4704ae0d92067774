#pragma once

#include "lab.h"

// y[i] = mean over j of x[i][j]^2.

lab::Task lab::task() {
  return {
      .formula = "y[i] = mean of x[i][j]^2 over j",
      .sizes = {{1, 1}, {3, 31}, {5, 1000}, {64, 512}},
      .large = {65536, 1024},
      .inputs = {all},
      .result = rows,
      .reference =
          [](Size size, Arrays x) {
            std::vector<double> y(rows(size));
            for (std::size_t i = 0; i < y.size(); ++i) {
              for (std::size_t j = 0; j < cols(size); ++j) {
                const double value = x[0][i * cols(size) + j];
                y[i] += value * value / size.cols;
              }
            }
            return y;
          },
      .tolerance = 1e-5,
  };
}
