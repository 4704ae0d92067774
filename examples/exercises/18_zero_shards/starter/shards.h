#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>

struct Shard {
  std::int64_t begin, end;
};

inline Shard shard_of(std::int64_t count, int world, int rank) {
  const std::int64_t each = count / world;
  return {rank * each, (rank + 1) * each};
}

struct Settings {
  double rate, max_norm;
};

inline void step(std::span<const double> gradient, std::span<double> weights, std::span<double> momentum,
                 const Settings& settings, const std::function<double(double)>& all_reduce) {
  (void)all_reduce;
  double squares = 0;
  for (const double value : gradient) squares += value * value;
  const double norm = std::sqrt(squares);
  const double factor = norm > settings.max_norm ? settings.max_norm / norm : 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    momentum[i] = 0.9 * momentum[i] + factor * gradient[i];
    weights[i] -= settings.rate * momentum[i];
  }
}
