#pragma once

#include <algorithm>

#include "lab.h"

// y[i] = max over j of x[i][j].

namespace row_max_task {

inline std::vector<double> largest(lab::Size size, lab::Arrays x, double floor, std::size_t every) {
  const std::size_t n = lab::cols(size);
  std::vector<double> y(lab::rows(size), floor);
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (j % 32 % every == 0) y[i] = std::max(y[i], double{x[0][i * n + j]});
  return y;
}

}  // namespace row_max_task

lab::Task lab::task() {
  using row_max_task::largest;
  return {
      .formula = "y[i] = max of x[i][j] over j",
      .sizes = {{4, 1}, {3, 31}, {70, 100}, {64, 512}},
      .large = {65536, 1024},
      .inputs = {all},
      .result = rows,
      .reference = [](Size size, Arrays x) { return largest(size, x, -2, 1); },
      .mistakes = {{"a row without a positive number gave 0: the largest of no numbers is not 0",
                    [](Size size, Arrays x) { return largest(size, x, 0, 1); }},
                   {"lane 0 has seen the even lanes only: the last shuffle, by 1, is missing",
                    [](Size size, Arrays x) { return largest(size, x, -2, 2); }}},
  };
}
