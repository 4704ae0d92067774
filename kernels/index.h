#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// Throws ArgumentError naming op if an element of index (i64, dense) is outside [0, size). CPU only: a
/// device that runs behind the host cannot report it in time.
ATH_KERNEL(void, check_indices, const char* op, const Tensor& index, std::int64_t size);

/// y[.., k, ..] = x[.., index[k], ..] along `axis`. x, y dense, one dtype; index [K] i64 dense. Moves 2
/// elements per element of y.
ATH_KERNEL(void, index_select, const Tensor& x, int axis, const Tensor& index, Out y);

/// dx[.., index[k], ..] += dy[.., k, ..]: the backward of index_select, in the order of k. All dense, one
/// floating dtype; a half type is summed in f32 and rounded once.
ATH_KERNEL(void, index_add, const Tensor& dy, int axis, const Tensor& index, Out dx);

/// y[i..] = x[i.., index[i..], ..]: y and index (i64) dense of one shape, x of their rank, no smaller than
/// index along any other axis, any strides.
ATH_KERNEL(void, gather, const Tensor& x, int axis, const Tensor& index, Out y);

/// dx[i.., index[i..], ..] += dy[i..]: the backward of gather, in the order of the index along `axis`. dx
/// dense, floating, dy dense; a half type is summed in f32 and rounded once.
ATH_KERNEL(void, scatter_add, const Tensor& dy, int axis, const Tensor& index, Out dx);

/// y = condition ? a : b, all broadcast to y's shape. condition bool; a, b, y one dtype; y dense.
ATH_KERNEL(void, where, const Tensor& condition, const Tensor& a, const Tensor& b, Out y);
ATH_MAP(where, (const Tensor& condition, const Tensor& a, const Tensor& b, Out y), "where", (condition, a, b),
        (y))

}  // namespace athanor::kernels
