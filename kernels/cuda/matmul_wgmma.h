#pragma once

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/detail/matmul_plan.h"

namespace athanor::cuda {

/// Queues the product by wgmma, if it can and, unless `always`, if that is worth it. Whether it has. It can
/// on sm_90, with factors of a half type whose lines begin at multiples of 16 bytes, in at most one batch; it
/// is worth it if the product has tiles for the whole GPU without cutting its depth. y is dense; the bias has
/// the dtype of a and b, or is undefined.
bool wgmma_matmul(const CudaContext& context, bool always, const MatmulPlan& plan, const Tensor& a,
                  const Tensor& b, const Tensor& bias, Activation activation, const Tensor& y,
                  bool accumulate);

}  // namespace athanor::cuda
