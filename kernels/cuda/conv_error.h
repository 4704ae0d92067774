#pragma once

#include "kernels/context.h"
#include "kernels/conv.h"

namespace athanor::cuda {

/// How precise y is, a forward pass by others: the root of the mean squared error against a convolution in
/// f32, over that of our own kernel, which sums in f32 and rounds once. 1: as precise as ours. Takes the
/// first and the last image, and waits for the device.
double error_beside_ours(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Tensor& y);

}  // namespace athanor::cuda
