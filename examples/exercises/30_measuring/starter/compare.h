#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

#include "coin.h"

using Run = std::function<double()>;

struct Comparison {
  double ratio, low, high;  // time of B / time of A
  bool differ;
};

inline Comparison compare(const Run& a, const Run& b, int rounds) {
  double time_a = 0, time_b = 0;
  for (int i = 0; i < rounds; ++i) time_a += a();
  for (int i = 0; i < rounds; ++i) time_b += b();
  const double ratio = time_b / time_a;
  return {ratio, ratio, ratio, ratio != 1};
}
