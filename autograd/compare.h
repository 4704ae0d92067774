#pragma once

#include "tensor/tensor.h"

namespace athanor {

// Elementwise comparisons and logic. The result is bool, dense and not differentiable. Operands have any one
// dtype, one device and any strides, and broadcast by NumPy's rule. A scalar takes the tensor's dtype; a
// floating dtype rounds it. Throws ArgumentError on shapes that do not broadcast, mixed dtypes or devices,
// and a number that an integer tensor cannot hold.

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

// Logic: every nonzero value is true, NaN included.

/// Truth of both, either, exactly one, or not: any dtype, nonzero is true; broadcast. Returns bool, not
/// recorded.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

}  // namespace athanor
