#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// The largest value along an axis of size >= 1, and the index (i64) of its first occurrence; NaN counts as
/// largest. x dense; values and index dense, with x's sizes without that axis (or with 1 there). Either may
/// be undefined.
template <class Context>
void max(Context& context, const Tensor& x, int axis, const Tensor& values, const Tensor& index);

/// dx = dy at `index` along the axis, 0 elsewhere. All dense.
template <class Context>
void max_backward(Context& context, const Tensor& index, const Tensor& dy, int axis, const Tensor& dx);

}  // namespace athanor::kernels
