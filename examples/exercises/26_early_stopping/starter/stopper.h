#pragma once

#include <limits>
#include <vector>

using Numbers = std::vector<double>;

class Stopper {
 public:
  explicit Stopper(int patience, double min_delta = 0) : patience_(patience), min_delta_(min_delta) {}

  bool update(double loss, const Numbers& weights) {
    if (loss <= last_ - min_delta_) bad_ = 0;
    last_ = loss;
    best_weights_ = &weights;
    return ++bad_ > patience_;
  }

  Numbers best_weights() const { return best_weights_ ? *best_weights_ : Numbers{}; }

  Numbers state() const { return {}; }
  void restore(const Numbers& state) { (void)state; }

 private:
  int patience_, bad_ = 0;
  double min_delta_, last_ = std::numeric_limits<double>::infinity();
  const Numbers* best_weights_ = nullptr;
};
