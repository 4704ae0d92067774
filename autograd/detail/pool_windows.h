#pragma once

#include "kernels/pool.h"

namespace athanor::detail {

/// The windows of a pool over x [N, H, W, C]. Throws ArgumentError, as max_pool2d() does, in the name of
/// `op`.
kernels::PoolWindows pool_windows(const char* op, const Tensor& x, const Pool2dParams& params);
/// [N, P, Q, C]
Shape pooled_shape(const Tensor& x, const kernels::PoolWindows& windows);

}  // namespace athanor::detail
