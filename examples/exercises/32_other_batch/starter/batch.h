#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

enum class Rule { linear, square_root };

inline std::int64_t steps_per_epoch(std::int64_t images, std::int64_t batch) {
  return (images + batch - 1) / batch;
}

inline double scaled_rate(double rate, std::int64_t chosen_for, std::int64_t batch, Rule rule) {
  (void)rule;
  return rate * static_cast<double>(chosen_for) / static_cast<double>(batch);
}

inline std::int64_t global_batch(std::int64_t per_device, std::int64_t devices, std::int64_t accumulate) {
  (void)devices, (void)accumulate;
  return per_device;
}

inline double accumulate(const std::vector<double>& gradients) {
  double sum = 0;
  for (const double gradient : gradients) sum += gradient;
  return sum;
}

inline double noise_variance(const std::vector<double>& gradients) {
  double squares = 0;
  for (const double gradient : gradients) squares += gradient * gradient;
  return squares / static_cast<double>(gradients.size());
}
