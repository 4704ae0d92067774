#pragma once

#include "kernels/cuda/grid_partition.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cuda {

// Convolutions as products of matrices (conv.cu). Contracts as in kernels/conv.h; `most` elements are counted
// in one launch.

template <class T>
void product_forward(const CudaContext& context, const ConvSize& z, Activation activation, const T* x,
                     const T* w, const T* bias, T* y, std::int64_t most = kMaxCounted);
/// conv2d_forward_sums(). False unless product_sums_columns() holds and x fits into one launch.
template <class T>
bool product_forward_sums(const CudaContext& context, const ConvSize& z, const T* x, const T* w, T* y,
                          float* sums);
template <class T>
void product_backward_data(const CudaContext& context, const ConvSize& z, const T* dy, const T* w, T* dx,
                           bool accumulate, std::int64_t most = kMaxCounted);
template <class T, class W>
void product_backward_weights(const CudaContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                              bool accumulate, std::int64_t most = kMaxCounted);

}  // namespace athanor::cuda
