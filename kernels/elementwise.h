#pragma once

#include "kernels/context.h"
#include "kernels/elementwise_ops.h"

namespace athanor::kernels {

/// y = Op(x). x any strides, y dense, same shape and floating dtype. y may be x.
/// Moves 2 elements per element.
ATH_KERNEL(template <class Op> void, unary_forward, const Tensor& x, Out y);

/// dx = Op::backward(saved, dy), where saved is y if Op::kFromOutput, else x. Any strides but dx, which is
/// dense; same shape and floating dtype. dx may be a dense dy. Moves 3 elements per element.
ATH_KERNEL(template <class Op> void, unary_backward, const Tensor& saved, const Tensor& dy, Out dx);

/// y = Op(a, b), a and b broadcast to y's shape; any strides, y dense. One dtype: floating, or any number if
/// Op::kTakesIntegers. y may be a or b if their shapes agree. Moves at most 3 elements per element.
ATH_KERNEL(template <class Op> void, binary_forward, const Tensor& a, const Tensor& b, Out y);

/// Throws ArgumentError naming op if b, integers of any strides, contains 0. CPU only, as check_indices().
ATH_KERNEL(void, check_divisors, const char* op, const Tensor& b);

/// dx = Op::first(a, b, dy), or Op::second: the derivative by `operand` 0 or 1, for the ops of
/// ATH_BINARY_GRADIENTS. All broadcast to dx's shape; any strides but dx, which is dense; one
/// floating dtype. Moves at most 4 elements per element.
ATH_KERNEL(template <class Op> void, binary_backward, int operand, const Tensor& a, const Tensor& b,
           const Tensor& dy, Out dx);

/// y = x scale + shift, rounded once in the accumulation type. x any strides, y dense, same shape and
/// floating dtype. y may be x. Moves 2 elements per element.
ATH_KERNEL(void, affine, const Tensor& x, double scale, double shift, Out y);
ATH_MAP(affine, (const Tensor& x, double, double, Out y), "affine", (x), (y))

}  // namespace athanor::kernels
