#pragma once

#include <cuda_runtime.h>

// y[row] = the sum of x[row, :]; x is [rows, cols], y is [rows], in device memory.
cudaError_t row_sum(int rows, int cols, const float* x, float* y, cudaStream_t stream);

/// The same with an error: a missing barrier.
cudaError_t row_sum_racy(int rows, int cols, const float* x, float* y, cudaStream_t stream);
