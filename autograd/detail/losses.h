#pragma once

#include "autograd/detail/dense.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"

namespace athanor::detail {

/// Losses are f32 (f64 for f64), whatever the inputs' dtype.
inline TensorOptions loss_options(const Tensor& x) {
  return {wide_dtype(x), x.device()};
}

/// Reduces the losses of samples as requested.
inline Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(losses);
    case Reduction::sum: return sum(losses);
    case Reduction::none: break;
  }
  return losses;
}

}  // namespace athanor::detail
