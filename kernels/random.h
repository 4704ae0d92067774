#pragma once

#include "kernels/context.h"
#include "tensor/philox.h"

namespace athanor::kernels {

/// y[i] = low + (high - low) u, with u of 24 bits from word i of the stream; stays below `high` after
/// rounding. y dense, floating.
ATH_KERNEL(void, random_uniform, RandomKey key, double low, double high, Out y);
ATH_MAP(random_uniform, (RandomKey, double, double, Out y), "rand", (), (y))

/// y[i] = mean + stddev n; block b of the stream gives elements 4 b .. 4 b + 3. y dense, floating.
ATH_KERNEL(void, random_normal, RandomKey key, double mean, double stddev, Out y);
ATH_MAP(random_normal, (RandomKey, double, double, Out y), "randn", (), (y))

/// y[i] uniform in [low, high), from 64-bit word i of the stream. y dense, any dtype.
ATH_KERNEL(void, random_integers, RandomKey key, std::int64_t low, std::int64_t high, Out y);
ATH_MAP(random_integers, (RandomKey, std::int64_t, std::int64_t, Out y), "randint", (), (y))

}  // namespace athanor::kernels
