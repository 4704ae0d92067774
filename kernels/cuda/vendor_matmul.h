#pragma once

#include "kernels/context.h"
#include "kernels/matmul.h"

namespace athanor::cuda {

/// y (+)= activation(a b + bias) by cuBLASLt, as kernels::matmul says; a, b and y may not be empty. False:
/// nothing was done, and our own kernel must run, because this build has no cuBLASLt, `impl` is neither
/// `automatic` nor `vendor`, or the strides or dtypes are not cuBLASLt's. BackendError is the caller's to
/// throw where `impl` is `vendor`.
bool vendor_matmul(CudaContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b,
                   const Tensor& bias, Activation activation, const Tensor& y, Write write);

}  // namespace athanor::cuda
