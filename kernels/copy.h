#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// y = x, converted to y's dtype as in kernels/convert.h. x any strides, broadcast to y's shape; y any
/// strides, without overlapping elements. Moves 2 elements per element.
template <class Context> void copy(Context& context, const Tensor& x, const Tensor& y);

/// Sets every element of y (dense, any dtype) to `value`.
template <class Context> void fill(Context& context, const Tensor& y, double value);

/// y += x; x any strides and broadcast to y's shape, any floating dtype; y floating, any strides, without
/// overlapping elements. The sum is rounded once. Moves 3 elements per element.
template <class Context> void add_into(Context& context, const Tensor& x, const Tensor& y);

/// y[i] = start + i * step, computed in double; y dense, any dtype.
template <class Context> void arange(Context& context, double start, double step, const Tensor& y);

/// y = the identity; y [n, m] dense, any dtype.
template <class Context> void eye(Context& context, const Tensor& y);

}  // namespace athanor::kernels
