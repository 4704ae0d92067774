#pragma once

#include <optional>

#include "kernels/context.h"
#include "kernels/conv.h"

namespace athanor::cuda {

// Convolution by cuDNN. The arguments and what they do are those of the kernels of the same names in
// kernels/conv.h; no tensor may be empty. False: nothing was done, and our own kernel must run, because this
// build has no cuDNN, cuDNN has no plan, params.impl is `reference`, or it is `automatic` and our kernel was
// measured to be faster. (To be measured, it is called as kernels::conv2d_*(context, {.impl = reference}).)
// BackendError is the caller's to throw where params.impl is `vendor`.

bool vendor_conv_forward(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Tensor& y);
/// conv2d_forward_sums(). std::nullopt: the vendor is not asked, and our own kernel may run.
std::optional<bool> vendor_conv_forward_sums(CudaContext& context, const Conv2dParams& params,
                                             const Tensor& x, const Tensor& w, const Tensor& y,
                                             const Tensor& sums);
bool vendor_conv_backward_data(CudaContext& context, const Conv2dParams& params, const Tensor& dy,
                               const Tensor& w, const Tensor& dx, Write write_dx = Write::overwrite);
/// dw and dbias may each be undefined.
bool vendor_conv_backward_weights(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                                  const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                                  Write write_dbias);

}  // namespace athanor::cuda
