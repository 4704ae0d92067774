#pragma once

#include <cmath>

struct Scaler {
  float scale = 65536, weight = 1;
  int steps = 0;
  float rate() const { return 1.0f / static_cast<float>(1 + steps); }

  // `gradient` is that of scale * loss.
  void step(float gradient) {
    const float limited = std::fmin(std::fmax(gradient, -1.0f), 1.0f);
    if (std::isfinite(gradient)) {
      weight -= rate() * limited / scale;
    } else {
      scale /= 2;
    }
    ++steps;
  }
};
