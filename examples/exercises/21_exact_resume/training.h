#pragma once

#include <array>
#include <cstdint>
#include <limits>

// Fits y = 3 x - 1 by SGD with momentum and noise, to eight points.
struct Training {
  std::array<double, 2> weights{0.1, 0}, momentum{}, best_weights{};
  double best_loss = std::numeric_limits<double>::infinity();
  double epoch_loss = 0;  // sum over this epoch so far
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // in the epoch
  std::int64_t updates = 0;   // the learning rate falls with them
  std::uint64_t noise = 1;    // state of the random numbers

  void step() {
    const auto sample = static_cast<std::uint64_t>((position * 5 + epoch * 3) % 8);
    const double x = static_cast<double>(sample) / 8,
                 rate = 0.2 / (1 + 0.01 * static_cast<double>(updates++));
    noise = noise * 6364136223846793005 + 1442695040888963407;
    const double jitter = static_cast<double>(noise >> 40) * 0x1p-30;
    const double error = weights[0] * x + weights[1] - (3 * x - 1) + jitter;
    momentum = {0.9 * momentum[0] + error * x, 0.9 * momentum[1] + error};
    for (std::size_t i = 0; i < 2; ++i) weights[i] -= rate * momentum[i] / 10;
    epoch_loss += error * error;
    if (++position < 8) return;
    if (epoch_loss < best_loss) {
      best_loss = epoch_loss;
      best_weights = weights;
    }
    position = 0;
    epoch_loss = 0;
    ++epoch;
  }
};
