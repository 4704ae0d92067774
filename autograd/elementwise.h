#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// a + b, broadcast by NumPy's rule. One floating dtype. Throws ArgumentError on shapes that do not broadcast
/// and on mixed dtypes or devices.
Tensor add(const Tensor& a, const Tensor& b);
/// a * b, broadcast as in add().
Tensor mul(const Tensor& a, const Tensor& b);

/// max(x, 0); the derivative at 0 is 0. x floating, any shape.
Tensor relu(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}

}  // namespace athanor
