#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// What a device does at best, as measured: the limits that an op's figures are held against.
struct Roof {
  double bytes_per_s = 0;  ///< of memory, read and written
  double flops_per_s = 0;  ///< of a matrix product
};

/// The best of some additions of 12 MiB each way and of products of 512 x 512 matrices of that dtype, with
/// this thread's threads; 0.1 s. On a GPU, and where there is no memory left for it: zeros, not known.
Roof measure_roof(const TensorOptions& options);

}  // namespace athanor
