#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/detail/matmul_plan.h"

namespace athanor::cpu {

/// A matrix of T with element (i, j) at data[i * row + j * col].
template <class T> struct MatrixView {
  const T* data;
  std::int64_t row, col;

  const T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row + j * col]; }
};

/// y (+)= a b by Eigen, on `threads` threads; y's row stride is `y_row`. One of each factor's strides must be
/// 1. float and double.
template <class T>
void gemm_eigen(const CpuContext& context, int threads, GemmSize size, MatrixView<T> a, MatrixView<T> b, T* y,
                std::int64_t y_row, bool accumulate);

/// Whether a matrix of these strides has contiguous, non-overlapping rows or columns.
inline bool blas_like(std::int64_t rows, std::int64_t cols, std::int64_t row, std::int64_t col) {
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

}  // namespace athanor::cpu
