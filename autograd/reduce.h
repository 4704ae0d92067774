#pragma once

#include <initializer_list>
#include <span>

#include "tensor/tensor.h"

namespace athanor {

// Reductions over `axes` (all where empty; negative ones count from the end) of a floating tensor with any
// strides. keepdim leaves axes of size 1. Sums of at most 8192 terms are made in f32 (f64 for f64), longer
// ones of such blocks in f64; the order depends on shape and strides alone, so the bits do not depend on
// threads. NaN in, NaN out. Throws ArgumentError on axes out of range or named twice.

/// The sum of nothing is 0.
Tensor sum(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
inline Tensor sum(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return sum(x, std::span(axes.begin(), axes.size()), keepdim);
}
/// The mean of nothing is NaN.
Tensor mean(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
inline Tensor mean(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return mean(x, std::span(axes.begin(), axes.size()), keepdim);
}
/// Sum of squared deviations from the mean (two passes), divided by count - correction; NaN or infinite where
/// that is not positive. Its gradient is then that of torch.var: along named axes 2 dy (x - mean) / (count -
/// correction), negative or infinite as it comes; over all, dy times infinity, or NaN where x is the mean.
Tensor var(const Tensor& x, std::span<const int> axes = {}, int correction = 1, bool keepdim = false);
/// The largest value; its gradient goes to the first of equal maxima. NaN wins. Throws ArgumentError where
/// the axis is empty.
Tensor max(const Tensor& x, int axis, bool keepdim = false);
/// Index (i64) of the first largest value along an axis; of the first NaN where there is one. Not
/// differentiable. Throws ArgumentError where the axis is empty.
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);

/// The largest value of all, without axes; equal ones share the gradient, as in PyTorch. NaN wins. Throws
/// ArgumentError where x is empty.
Tensor max(const Tensor& x);
/// Index (i64, without axes) of the first largest value in row-major order; of the first NaN where there is
/// one. Not differentiable. Throws ArgumentError where x is empty.
Tensor argmax(const Tensor& x);

/// Whether an element along `axes`, of any dtype, is true: bool; of none, false. What is not zero is true,
/// and so is NaN. Not differentiable.
Tensor any(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
/// Whether all are; of none, true.
Tensor all(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);

/// x summed to `shape`, which broadcasts to x's: undoes a broadcast in a backward pass. x itself where the
/// shapes are equal. Not recorded.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace athanor
