#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// A device's measured peak performance, for comparison with the figures of ops.
struct Roof {
  double bytes_per_s = 0;  ///< of memory, reads and writes
  double flops_per_s = 0;  ///< of a matrix product
};

/// The best of several additions of 12 MiB each way and products of 512 x 512 matrices of that dtype, with
/// this thread's thread count; takes 0.1 s. On a GPU, or without free memory: zeros, unknown.
Roof measure_roof(const TensorOptions& options);

}  // namespace athanor
