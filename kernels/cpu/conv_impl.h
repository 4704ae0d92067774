#pragma once

#include <algorithm>

#include "kernels/detail/conv_size.h"

// The implementations behind kernels/cpu/conv.cpp. All take plain NHWC images and KRSC filters.

namespace athanor::cpu {

/// im2col tiles per thread, multiplied by Eigen.
template <class T>
void conv_forward_eigen(CpuContext& context, const ConvSize& size, Activation activation, const T* x,
                        const T* w, const T* bias, T* y);
template <class T>
void conv_backward_data_eigen(CpuContext& context, const ConvSize& size, const T* dy, const T* w, T* dx);
template <class T, class W>
void conv_backward_weights_eigen(CpuContext& context, const ConvSize& size, const T* x, const T* dy, W* dw,
                                 bool accumulate);

/// Our own loops (conv_direct.cpp, conv_scatter.cpp, conv_gradient.cpp), for f32 and half types, and the
/// tests whether they support a convolution on this CPU.
template <class T>
void conv_forward_direct(CpuContext& context, const ConvSize& size, Activation activation, const T* x,
                         const T* w, const T* bias, T* y);
bool conv_direct_fits(const ConvSize& size);

/// For few input channels: R ceil(S C / 16) <= 12, and S C <= 48 without AVX-512.
template <class T>
void conv_backward_data_scatter(CpuContext& context, const ConvSize& size, const T* dy, const T* w, T* dx);
bool conv_scatter_fits(const ConvSize& size);

/// dw is of x's dtype or f32; with `accumulate` it is added to.
template <class T, class W>
void conv_backward_weights_direct(CpuContext& context, const ConvSize& size, const T* x, const T* dy, W* dw,
                                  bool accumulate);
bool conv_gradient_fits(const ConvSize& size);

}  // namespace athanor::cpu
