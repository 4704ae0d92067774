#pragma once

#include <cstdint>

#include "tensor/philox.h"
#include "tensor/tensor.h"

namespace athanor {

// New tensors, created on their device without a copy. None needs a gradient before require_grad().

/// Uninitialised values.
inline Tensor empty(const Shape& shape, TensorOptions options = {}) {
  return Tensor::empty(shape, options);
}
/// All 0.
inline Tensor zeros(const Shape& shape, TensorOptions options = {}) {
  return Tensor::zeros(shape, options);
}
/// All 1, or all `value`, rounded to the dtype.
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, double value, TensorOptions options = {});
/// start, start + step, ... below `end` (above it for a negative step).
Tensor arange(double start, double end, double step = 1, TensorOptions options = {});
/// The identity [n, n].
Tensor eye(std::int64_t n, TensorOptions options = {});

// Counter-based random numbers (Philox4x32-10): element i is a function of (seed, stream, i), the same on
// every device, in any dtype and for any number of threads.

/// Uniform in [low, high).
Tensor rand(const Shape& shape, RandomKey key, double low = 0, double high = 1, TensorOptions options = {});
/// Normal with the given mean and standard deviation (Box-Muller).
Tensor randn(const Shape& shape, RandomKey key, double mean = 0, double stddev = 1,
             TensorOptions options = {});
/// Integers, uniform in [low, high); i64 by default.
Tensor randint(const Shape& shape, RandomKey key, std::int64_t low, std::int64_t high,
               TensorOptions options = {DType::i64, kCpu});
/// A random permutation of 0 .. n-1, i64.
Tensor randperm(std::int64_t n, RandomKey key, Device device = kCpu);

}  // namespace athanor
