#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

// Reductions from x's shape to y's, of the same rank, in which the reduced axes have size 1. x any strides, y
// dense; both floating, y's dtype may differ. Blocks of at most 8192 terms are summed in f32 (f64 for f64),
// in lanes; blocks are joined in f64. The order depends on shape and strides alone, not on threads or ISA.
// Reads every element of x once.

/// y (+)= scale * sum(x). The sum over no elements is 0.
template <class Context>
void sum(Context& context, const Tensor& x, const Tensor& y, double scale = 1,
         Write write = Write::overwrite);

/// y = scale * sum((x - mean)^2); mean has y's shape and the accumulation dtype (f32, or f64 for f64 x).
template <class Context>
void squared_deviation(Context& context, const Tensor& x, const Tensor& mean, const Tensor& y, double scale);

/// dx = scale * dy * (x - mean), with mean as in squared_deviation() and dy dense, shaped like it. x any
/// strides, dx dense.
template <class Context>
void squared_deviation_backward(Context& context, const Tensor& x, const Tensor& mean, const Tensor& dy,
                                const Tensor& dx, double scale);

/// Counts NaN and infinite elements of x (dense, floating). Waits for the device: for diagnosis only.
template <class Context> std::int64_t count_nonfinite(Context& context, const Tensor& x);

}  // namespace athanor::kernels
