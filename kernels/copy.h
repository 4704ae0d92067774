#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// y = x, converted to y's dtype as in kernels/convert.h. x any strides, broadcast to y's shape; y any
/// strides, without overlapping elements. Moves 2 elements per element.
ATH_KERNEL(void, copy, const Tensor& x, Out y);

/// Sets every element of y (dense, any dtype) to `value`.
ATH_KERNEL(void, fill, Out y, double value);
ATH_MAP(fill, (Out y, double), "fill", (), (y))

/// y += x; x any strides and broadcast to y's shape, any floating dtype; y floating, any strides, without
/// overlapping elements. The sum is rounded once. Moves 3 elements per element.
ATH_KERNEL(void, add_into, const Tensor& x, Out y);
ATH_MAP(add_into, (const Tensor& x, Out y), "add_into", (x, y), (y))

/// y[i] = start + i * step, computed in double; y dense, any dtype.
ATH_KERNEL(void, arange, double start, double step, Out y);
ATH_MAP(arange, (double, double, Out y), "arange", (), (y))

/// y = the identity; y [n, m] dense, any dtype.
ATH_KERNEL(void, eye, Out y);
ATH_MAP(eye, (Out y), "eye", (), (y))

}  // namespace athanor::kernels
