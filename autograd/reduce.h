#pragma once

#include <span>

#include "tensor/tensor.h"

namespace athanor {

// Reductions over `axes` (all where empty). The sum is accumulated in f32 (f64 for f64) in an order that
// depends on shapes alone. keepdim leaves axes of size 1.

Tensor sum(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
Tensor mean(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);
/// Divides by count - correction.
Tensor var(const Tensor& x, std::span<const int> axes = {}, int correction = 1, bool keepdim = false);
/// The largest value; its gradient goes to the first of equal maxima. NaN wins.
Tensor max(const Tensor& x, int axis, bool keepdim = false);
/// Index (i64) of the first largest value along an axis. Not differentiable.
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);

}  // namespace athanor
