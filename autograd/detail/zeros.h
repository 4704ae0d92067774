#pragma once

#include <array>

#include "autograd/shape.h"

namespace athanor::detail {

/// x with `more` slices of zeros appended along an axis.
inline Tensor with_zeros_behind(const Tensor& x, int axis, std::int64_t more) {
  Shape zeros = x.shape();
  zeros[axis] = more;
  return cat(std::array{x, Tensor::zeros(zeros, x.options())}, axis);
}

}  // namespace athanor::detail
