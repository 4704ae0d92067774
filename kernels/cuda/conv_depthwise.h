#pragma once

#include "kernels/cuda/grid_partition.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cuda {

// Convolutions whose groups have one input channel each: as products of matrices they would be as narrow as
// one number, so they have kernels of their own. Contracts as in kernels/conv.h; `most` elements are counted
// in one launch, where an image has no more: it must have less than 2^31.

inline bool is_depthwise(const ConvSize& z) {
  return z.groups > 1 && z.group_c() == 1;
}

template <class T>
void depthwise_forward(const CudaContext& context, const ConvSize& z, Activation activation, const T* x,
                       const T* w, const T* bias, T* y, std::int64_t most = kMaxCounted);
template <class T>
void depthwise_backward_data(const CudaContext& context, const ConvSize& z, const T* dy, const T* w, T* dx,
                             std::int64_t most = kMaxCounted);
template <class T, class W>
void depthwise_backward_weights(const CudaContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                                bool accumulate, std::int64_t most = kMaxCounted);

}  // namespace athanor::cuda
