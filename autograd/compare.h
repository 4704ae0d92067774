#pragma once

#include "tensor/tensor.h"

namespace athanor {

// Comparisons and logic, element by element: the result is bool, dense and not differentiable. Operands of
// any one dtype, on one device, broadcast by NumPy's rule; any strides. A number counts as one of the
// tensor's dtype, rounded where that is floating. Throws ArgumentError on shapes that do not broadcast, on
// mixed dtypes or devices, and on a number that an integer tensor cannot hold.

/// a == b; NaN equals nothing.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
/// a != b
Tensor ne(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, double b);
/// a < b
Tensor lt(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, double b);
/// a <= b
Tensor le(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, double b);
/// a > b
Tensor gt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, double b);
/// a >= b
Tensor ge(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, double b);

// Logic: what is not zero is true, and so is NaN.

Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

}  // namespace athanor
