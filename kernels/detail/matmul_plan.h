#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

/// Sizes of y [m, n] = a [m, k] b [k, n].
struct GemmSize {
  std::int64_t m, n, k;
};

/// A batch of products as a loop nest: the leading axes of kernels::matmul. `kept` axes are y's; products are
/// summed over `summed` axes.
struct Batches {
  struct Axis {
    std::int64_t size, a, b, y;  // strides in elements
  };
  std::array<Axis, kMaxRank> kept{}, summed{};
  int kept_rank = 0, summed_rank = 0;

  static std::int64_t count(const std::array<Axis, kMaxRank>& axes, int rank) {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= axes[i].size;
    return n;
  }
};

/// One matmul call reduced to its loops: sizes, strides in elements, and the batch, folded into the product
/// if the memory layout allows.
struct MatmulPlan {
  GemmSize size{};
  std::int64_t a_row, a_col, b_row, b_col, y_row;
  Batches batches;

  MatmulPlan(const Tensor& a, const Tensor& b, const Tensor& y) {
    const int rank = y.rank();
    size = {y.shape()[rank - 2], y.shape()[rank - 1], a.shape()[rank - 1]};
    a_row = a.strides()[rank - 2], a_col = a.strides()[rank - 1];
    b_row = b.strides()[rank - 2], b_col = b.strides()[rank - 1];
    y_row = size.n;
    for (int axis = 0; axis + 2 < rank; ++axis) {
      const auto stride = [&](const Tensor& t) { return t.shape()[axis] == 1 ? 0 : t.strides()[axis]; };
      const std::int64_t n = std::max(a.shape()[axis], b.shape()[axis]);
      const bool empty = a.shape()[axis] == 0 || b.shape()[axis] == 0;
      if (n == 1) continue;
      const Batches::Axis entry{empty ? 0 : n, stride(a), stride(b), stride(y)};
      if (y.shape()[axis] == 1) {
        batches.summed[batches.summed_rank++] = entry;
      } else {
        batches.kept[batches.kept_rank++] = entry;
      }
    }
    fold_rows();
    fold_depth();
    // The stride of an axis of one element is arbitrary: use that of a dense matrix.
    if (size.m == 1) a_row = std::max(a_row, size.k);
    if (size.k == 1) a_col = 1, b_row = std::max(b_row, size.n);
    if (size.n == 1) b_col = b_row == 1 ? std::max(b_col, size.k) : 1;
  }

 private:
  // A batch of adjacent row blocks with one b is one taller product.
  void fold_rows() {
    while (batches.kept_rank > 0) {
      const Batches::Axis& last = batches.kept[batches.kept_rank - 1];
      if (last.b != 0 || last.a != size.m * a_row || last.y != size.m * y_row) return;
      size.m *= last.size;
      --batches.kept_rank;
    }
  }
  // Products summed over a contiguous batch are one deeper product.
  void fold_depth() {
    while (batches.summed_rank > 0) {
      const Batches::Axis& last = batches.summed[batches.summed_rank - 1];
      if (last.a != size.k * a_col || last.b != size.k * b_row) return;
      size.k *= last.size;
      --batches.summed_rank;
    }
  }
};

}  // namespace athanor
