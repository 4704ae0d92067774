#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// y = x, converted to y's dtype; x any strides and broadcast to y's shape, y dense.
template <class Context> void copy(Context& context, const Tensor& x, const Tensor& y);

/// Every element of y (dense, any dtype) becomes `value`.
template <class Context> void fill(Context& context, const Tensor& y, double value);

/// y += x; x any strides and broadcast to y's shape, any floating dtype; y dense and floating. The sum is
/// rounded once.
template <class Context> void add_into(Context& context, const Tensor& x, const Tensor& y);

}  // namespace athanor::kernels
