#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// How many elements of x (dense, floating) are NaN or infinite. Waits for the device: for diagnosis only.
template <class Context> std::int64_t count_nonfinite(Context& context, const Tensor& x);

}  // namespace athanor::kernels
