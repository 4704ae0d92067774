#pragma once

#include <cmath>
#include <functional>
#include <vector>

using Function = std::function<double(const std::vector<double>&)>;

inline int first_wrong(const Function& f, std::vector<double>& x, const std::vector<double>& gradient,
                       double tolerance) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-12, before = f(x);
    x[i] += h;
    const double numerical = (f(x) - before) / h;
    if (std::fabs(gradient[i] - numerical) > tolerance * (1 + std::fabs(numerical)))
      return static_cast<int>(i);
  }
  return -1;
}
