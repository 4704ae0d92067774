#pragma once

#include <initializer_list>
#include <span>

#include "tensor/tensor.h"

namespace athanor {

// Reductions over `axes` (empty: all; negative axes count from the end) of a floating tensor with any
// strides. keepdim keeps axes of size 1. Up to 8192 terms are summed in f32 (f64 for f64), then such blocks
// in f64. The order depends on shape and strides alone, so threads do not change the bits. NaN in, NaN out.
// Throws ArgumentError on axes out of range or repeated.

/// The sum over no elements is 0.
Tensor sum(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
inline Tensor sum(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return sum(x, std::span(axes.begin(), axes.size()), keepdim);
}
/// The mean over no elements is NaN.
Tensor mean(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
inline Tensor mean(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return mean(x, std::span(axes.begin(), axes.size()), keepdim);
}
/// Sum of squared deviations from the mean (two passes) divided by count - correction; NaN or infinite if
/// that is not positive. The gradient then equals torch.var's: 2 dy (x - mean) / (count - correction) along
/// named axes; over all, dy times infinity, or NaN where x is the mean.
Tensor var(const Tensor& x, std::span<const int> axes = {}, int correction = 1, bool keepdim = false);
/// The largest value along an axis; the gradient goes to the first of equal maxima. NaN wins. Throws
/// ArgumentError if the axis is empty.
Tensor max(const Tensor& x, int axis, bool keepdim = false);
/// Index (i64) of the first largest value along an axis, or of the first NaN. Not differentiable. Throws
/// ArgumentError if the axis is empty.
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);

/// The largest value of all, as a scalar; equal maxima share the gradient, as in PyTorch. NaN wins. Throws
/// ArgumentError if x is empty.
Tensor max(const Tensor& x);
/// Index (i64, a scalar) of the first largest value in row-major order, or of the first NaN. Not
/// differentiable. Throws ArgumentError if x is empty.
Tensor argmax(const Tensor& x);

/// Whether any element along `axes` is true: bool; false over no elements. x of any dtype; every nonzero
/// value is true, NaN included. Not differentiable.
Tensor any(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
/// Whether all elements are true; true over no elements.
Tensor all(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);

/// Sums x to `shape`, which must broadcast to x's: undoes a broadcast in a backward pass. Returns x itself if
/// the shapes are equal. Not recorded.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace athanor
