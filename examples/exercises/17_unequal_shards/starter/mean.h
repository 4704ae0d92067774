#pragma once

#include <functional>
#include <vector>

using Numbers = std::vector<double>;
using AllReduce = std::function<void(Numbers&)>;

class Gradient {
 public:
  Gradient(std::size_t size, int world) : sum_(size, 0.0), world_(world) {}

  void add(const Numbers& mean, int samples) {
    (void)samples;
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += mean[i];
    ++passes_;
  }

  Numbers finish(const AllReduce& all_reduce) {
    all_reduce(sum_);
    Numbers result = sum_;
    for (double& value : result) value /= passes_ * world_;
    sum_.assign(sum_.size(), 0.0);
    passes_ = 0;
    return result;
  }

 private:
  Numbers sum_;
  int world_, passes_ = 0;
};
