#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "tensor/tensor.h"

namespace athanor {

// Views share memory with x and cost no copy; all are recorded. Axes may be negative.

/// The same elements in another shape; one size may be -1. A view if x is dense, else a view of a dense copy.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Merges axes [start, end] into one; the default keeps the batch: [N, ...] -> [N, rest].
Tensor flatten(const Tensor& x, int start = 1, int end = -1);
/// Axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, std::span<const int> order);
inline Tensor permute(const Tensor& x, std::initializer_list<int> order) {
  return permute(x, std::span(order.begin(), order.size()));
}
Tensor transpose(const Tensor& x, int a, int b);
/// Elements [start, start + length) along an axis.
Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length);
/// The slice at `index` along an axis, which is dropped.
Tensor select(const Tensor& x, int axis, std::int64_t index);
/// Drops an axis of size 1.
Tensor squeeze(const Tensor& x, int axis);
/// Inserts an axis of size 1 at `axis` of the result.
Tensor unsqueeze(const Tensor& x, int axis);
/// Repeats axes of size 1 (and new leading ones) without copying. The gradient is summed back.
Tensor expand(const Tensor& x, const Shape& shape);

/// x itself if it is dense, else a dense copy.
Tensor contiguous(const Tensor& x);
/// A dense copy that shares no memory.
Tensor clone(const Tensor& x);
/// x in another dtype; x itself if it has that dtype. Recorded between floating dtypes. Rounds once, to
/// nearest even. To an integer dtype it truncates, saturates and turns NaN into 0.
Tensor cast(const Tensor& x, DType dtype);

/// Joins tensors along `axis`; their shapes must be equal on the other axes.
Tensor cat(std::span<const Tensor> parts, int axis);
inline Tensor cat(std::initializer_list<Tensor> parts, int axis) {
  return cat(std::span(parts.begin(), parts.size()), axis);
}
/// Joins tensors of equal shape along a new axis.
Tensor stack(std::span<const Tensor> parts, int axis);
inline Tensor stack(std::initializer_list<Tensor> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}
/// Slices of x along `axis` at `index` [K] (integers). Throws ArgumentError outside [0, size) (CPU only).
Tensor index_select(const Tensor& x, int axis, const Tensor& index);
/// y[i][j] = x[i][index[i][j]] for axis 1, and so on. index holds integers, has x's rank and is no larger
/// than x along the other axes; y has its shape. Indices are checked as in index_select().
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// a where condition (bool) holds, b elsewhere; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace athanor
