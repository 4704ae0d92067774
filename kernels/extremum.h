#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// The largest value along an axis of size >= 1, and the index (i64) of its first occurrence; NaN counts as
/// largest. x dense; values and index dense, with x's sizes without that axis (or with 1 there). Either may
/// be undefined.
ATH_KERNEL(void, max, const Tensor& x, int axis, Out values, Out index);
ATH_MAP(max, (const Tensor& x, int, Out values, Out index), "max", (x), (values, index))

/// dx = dy at `index` along the axis, 0 elsewhere. All dense.
ATH_KERNEL(void, max_backward, const Tensor& index, const Tensor& dy, int axis, Out dx);
ATH_MAP(max_backward, (const Tensor& index, const Tensor& dy, int, Out dx), "max_backward", (index, dy), (dx))

}  // namespace athanor::kernels
