#pragma once

#include "kernels/context.h"
#include "kernels/norm.h"

namespace athanor::cuda {

// Batch normalisation in training by cuDNN, for measuring our own kernels against: one engine for all, which
// cuDNN compiles when a plan is made, so it must be asked for with VendorOptions::runtime_compiled. Tensors
// as in kernels/norm.h, but gamma and beta must be there. False: nothing was done.

/// y = activation(norm(x) + residual), filling `stats` and moving `running` (which may be undefined). cuDNN
/// has: no activation, relu, and relu after a residual.
bool vendor_batch_norm_forward(CudaContext& context, Activation activation, const Tensor& x,
                               const Tensor& gamma, const Tensor& beta, double eps,
                               const kernels::RunningStats& running, const Tensor& residual,
                               const Tensor& stats, const Tensor& y);

/// cuDNN has no activation here, no residual, and overwrites dgamma and dbeta.
bool vendor_batch_norm_backward(CudaContext& context, const kernels::BatchNormBackward& args);

}  // namespace athanor::cuda
