#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

using Row = std::vector<double>;
using Rows = std::vector<Row>;

struct Linear {
  Rows weights;  // [out][in]
  Row bias;      // [out]

  Rows operator()(const Rows& x) const {
    Rows y;
    for (const Row& row : x) {
      y.push_back(bias);
      for (std::size_t k = 0; k < bias.size(); ++k)
        for (std::size_t i = 0; i < row.size(); ++i) y.back()[k] += weights[k][i] * row[i];
    }
    return y;
  }
};

struct BatchNorm {
  Row gamma, beta, running_mean, running_variance;
  double eps = 1e-5, momentum = 0.1;

  Rows train(const Rows& x) {  // x [n >= 1][channels]
    return x;
  }

  Rows eval(const Rows& x) const { return x; }
};

inline Linear fold(const Linear& linear, const BatchNorm& norm) {
  (void)norm;
  return linear;
}
