#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

// Reductions from x's shape to y's, of the same rank, in which the reduced axes have size 1. x any strides, y
// dense; both floating, y's dtype may differ. Blocks of at most 8192 terms are summed in f32 (f64 for f64),
// in lanes; blocks are joined in f64. The order depends on shape and strides alone, not on threads or ISA.
// Reads every element of x once.

/// y (+)= scale * sum(x). The sum over no elements is 0.
ATH_KERNEL(void, sum, const Tensor& x, Out y, double scale = 1, Write write = Write::overwrite);

/// y = scale * sum((x - mean)^2); mean has y's shape and the accumulation dtype (f32, or f64 for f64 x).
ATH_KERNEL(void, squared_deviation, const Tensor& x, const Tensor& mean, Out y, double scale);

/// dx = scale * dy * (x - mean), with mean as in squared_deviation() and dy dense, shaped like it. x any
/// strides, dx dense.
ATH_KERNEL(void, squared_deviation_backward, const Tensor& x, const Tensor& mean, const Tensor& dy, Out dx,
           double scale);
ATH_MAP(squared_deviation_backward, (const Tensor& x, const Tensor& mean, const Tensor& dy, Out dx, double),
        "var_backward", (x, mean, dy), (dx))

/// Counts NaN and infinite elements of x (dense, floating). Waits for the device: for diagnosis only.
ATH_KERNEL(std::int64_t, count_nonfinite, const Tensor& x);

}  // namespace athanor::kernels
