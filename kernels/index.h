#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// Throws ArgumentError naming op if an element of index (i64, dense) is outside [0, size). CPU only: a
/// device that runs behind the host cannot report it in time.
template <class Context>
void check_indices(Context& context, const char* op, const Tensor& index, std::int64_t size);

/// y[.., k, ..] = x[.., index[k], ..] along `axis`. x, y dense, one dtype; index [K] i64 dense. Moves 2
/// elements per element of y.
template <class Context>
void index_select(Context& context, const Tensor& x, int axis, const Tensor& index, const Tensor& y);

/// dx[.., index[k], ..] += dy[.., k, ..]: the backward of index_select, in the order of k. All dense, one
/// floating dtype; a half type is summed in f32 and rounded once.
template <class Context>
void index_add(Context& context, const Tensor& dy, int axis, const Tensor& index, const Tensor& dx);

/// y[i..] = x[i.., index[i..], ..]: y and index (i64) dense of one shape, x of their rank, no smaller than
/// index along any other axis, any strides.
template <class Context>
void gather(Context& context, const Tensor& x, int axis, const Tensor& index, const Tensor& y);

/// dx[i.., index[i..], ..] += dy[i..]: the backward of gather, in the order of the index along `axis`. dx
/// dense, floating, dy dense; a half type is summed in f32 and rounded once.
template <class Context>
void scatter_add(Context& context, const Tensor& dy, int axis, const Tensor& index, const Tensor& dx);

/// y = condition ? a : b, all broadcast to y's shape. condition bool; a, b, y one dtype; y dense.
template <class Context>
void where(Context& context, const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y);

}  // namespace athanor::kernels
