#pragma once

#include <cmath>
#include <vector>

using Values = std::vector<double>;

class Norm {
 public:
  double gamma = 1, beta = 0, dgamma = 0, dbeta = 0;
  double running_mean = 0, running_var = 1;
  double momentum = 0.1, eps = 1e-5;
  bool training = true;

  Values forward(const Values& x) {
    const double n = static_cast<double>(x.size());
    double mean = 0, var = 0;
    for (const double value : x) mean += value / n;
    for (const double value : x) var += (value - mean) * (value - mean) / n;
    inverse_ = 1 / std::sqrt(var + eps);
    normal_.clear();
    Values y;
    for (const double value : x) {
      normal_.push_back((value - mean) * inverse_);
      y.push_back(normal_.back() * gamma + beta);
    }
    return y;
  }

  Values backward(const Values& dy) {
    Values dx;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dgamma += dy[i] * normal_[i];
      dbeta += dy[i];
      dx.push_back(dy[i] * gamma * inverse_);
    }
    return dx;
  }

 private:
  Values normal_;  // (x - mean) / sqrt(var + eps) of the last forward
  double inverse_ = 1;
};
