#pragma once

#include "lab.h"

// y = a x + z, element by element. The hello world of GPUs.

constexpr float kScale = 1.5f;

lab::Task lab::task() {
  return {
      .formula = "y = 1.5 x + z",
      .sizes = {{1, 1}, {1, 255}, {1, 257}, {1, 4096}},
      .large = {1, 1 << 26},
      .inputs = {all, all},
      .result = all,
      .reference =
          [](Size size, Arrays x) {
            std::vector<double> y(all(size));
            for (std::size_t i = 0; i < y.size(); ++i) y[i] = double{kScale} * x[0][i] + x[1][i];
            return y;
          },
      .tolerance = 1e-6,
  };
}
