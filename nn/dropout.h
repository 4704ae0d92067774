#pragma once

#include "autograd/dropout.h"
#include "nn/module.h"

namespace athanor::nn {

/// Zeroes elements with probability p in training and scales the rest up; the identity in evaluation.
class Dropout final : public Module {
 public:
  explicit Dropout(float p = 0.5f) { set_p(p); }
  Tensor forward(const Tensor& x) override { return dropout(x, p_, training()); }

  float p() const { return p_; }
  /// Throws ArgumentError on a probability outside [0, 1].
  void set_p(float p) {
    ATH_CHECK(p >= 0 && p <= 1, "Dropout: probability must be in [0, 1], but got {}", p);
    p_ = p;
  }

 private:
  float p_ = 0;
};

}  // namespace athanor::nn
