#include "kernels/cuda/gemm_layout.h"

#include <algorithm>

namespace athanor::cuda {
namespace {

/// A rows x columns matrix with those strides; nothing where neither of them is dense, or elements overlap.
std::optional<GemmLayout::Operand> operand_of(std::int64_t rows, std::int64_t columns,
                                              std::int64_t row_stride, std::int64_t column_stride) {
  // The stride of an axis of one element says nothing.
  const auto fits = [](std::int64_t outer, std::int64_t inner, std::int64_t outer_stride,
                       std::int64_t inner_stride) {
    return (inner == 1 || inner_stride == 1) && (outer == 1 || outer_stride >= inner);
  };
  if (fits(rows, columns, row_stride, column_stride))
    return GemmLayout::Operand{false, rows == 1 ? columns : row_stride, 0};
  if (fits(columns, rows, column_stride, row_stride))
    return GemmLayout::Operand{true, columns == 1 ? rows : column_stride, 0};
  return std::nullopt;
}

/// A leading axis: its size, and how far apart neighbours are in each operand.
struct Axis {
  std::int64_t size, a, b, y;
};

}  // namespace

std::optional<GemmLayout> gemm_layout(const Tensor& a, const Tensor& b, const Tensor& y) {
  const int last = y.rank() - 1;
  std::int64_t m = a.shape()[last - 1], k = a.shape()[last];
  const std::int64_t n = b.shape()[last];
  std::int64_t a_row = a.strides()[last - 1], a_column = a.strides()[last];
  std::int64_t b_row = b.strides()[last - 1];
  const std::int64_t b_column = b.strides()[last];

  // Innermost first: each axis grows m, k or the batch, or nothing fits.
  std::int64_t y_stride = y.shape()[last - 1] * n;  // y is dense
  std::optional<Axis> batch;
  bool rows_grew = false, depth_grew = false;
  for (int i = last - 2; i >= 0; --i) {
    const std::int64_t size = std::max(a.shape()[i], b.shape()[i]);
    const auto stride_of = [i](const Tensor& t) { return t.shape()[i] == 1 ? 0 : t.strides()[i]; };
    const Axis axis{size, stride_of(a), stride_of(b), y.shape()[i] == 1 ? 0 : y_stride};
    y_stride *= y.shape()[i];
    if (size == 1) continue;
    if (axis.y == 0) {  // summed
      const bool continues = k == 1 || (axis.a == k * a_column && axis.b == k * b_row);
      if (batch || rows_grew || !continues) return std::nullopt;
      if (k == 1) a_column = axis.a, b_row = axis.b;
      k *= size;
      depth_grew = true;
    } else if (!batch && !depth_grew && axis.b == 0 && (m == 1 || axis.a == m * a_row)) {
      if (m == 1) a_row = axis.a;
      m *= size;
      rows_grew = true;
    } else if (!batch) {
      batch = axis;
    } else if (axis.a == batch->a * batch->size && axis.b == batch->b * batch->size &&
               axis.y == batch->y * batch->size) {
      batch->size *= size;
    } else {
      return std::nullopt;
    }
  }

  const auto left = operand_of(m, k, a_row, a_column), right = operand_of(k, n, b_row, b_column);
  if (!left || !right) return std::nullopt;
  GemmLayout layout{m, n, k, 1, *left, *right};
  if (batch) {
    layout.batch = batch->size;
    layout.a.batch_stride = batch->a;
    layout.b.batch_stride = batch->b;
  }
  return layout;
}

GemmLayout pointwise_layout(ConvPass pass, std::int64_t pixels, std::int64_t c, std::int64_t k) {
  switch (pass) {
    case ConvPass::backward_data: return {pixels, c, k, 1, {false, k, 0}, {false, c, 0}};
    case ConvPass::backward_weights: return {k, c, pixels, 1, {true, k, 0}, {false, c, 0}};
    case ConvPass::forward: break;
  }
  return {pixels, k, c, 1, {false, c, 0}, {true, c, 0}};
}

}  // namespace athanor::cuda
