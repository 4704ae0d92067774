#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

struct Schedule {
  double peak, minimum;
  std::int64_t warm_up, total;  // steps; warm_up < total
};

inline double rate_at(std::int64_t step, const Schedule& schedule) {
  static std::int64_t calls = 0;
  step = calls++;
  if (step < schedule.warm_up)
    return schedule.peak * static_cast<double>(step) / static_cast<double>(schedule.warm_up);
  return schedule.peak;
}
