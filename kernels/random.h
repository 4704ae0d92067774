#pragma once

#include "kernels/context.h"
#include "tensor/philox.h"

namespace athanor::kernels {

/// y[i] = low + (high - low) u, with u of 24 bits from word i of the stream; stays below `high` after
/// rounding. y dense, floating.
template <class Context>
void random_uniform(Context& context, RandomKey key, double low, double high, const Tensor& y);

/// y[i] = mean + stddev n; block b of the stream gives elements 4 b .. 4 b + 3. y dense, floating.
template <class Context>
void random_normal(Context& context, RandomKey key, double mean, double stddev, const Tensor& y);

/// y[i] uniform in [low, high), from 64-bit word i of the stream. y dense, any dtype.
template <class Context>
void random_integers(Context& context, RandomKey key, std::int64_t low, std::int64_t high, const Tensor& y);

}  // namespace athanor::kernels
