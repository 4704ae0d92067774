#pragma once

#include <cstddef>

#include "tensor/tensor.h"

// Device tensors read by the host. Private to tensor/.

namespace athanor::detail {

/// Bytes of a dense tensor of that shape. Throws ArgumentError naming op if no memory could hold it.
std::size_t checked_bytes(const Shape& shape, DType dtype, const char* op);

/// The tensor itself if it is on the CPU; else a CPU tensor of the same strides, with a copy of the bytes
/// between its first and last element. A wait, which the caller counts.
Tensor on_host(const Tensor& tensor);

/// The value `offset` elements from the first one of a tensor on the CPU.
double element(const Tensor& tensor, std::int64_t offset);

/// A dense copy of a tensor on the CPU, whatever its strides.
Tensor dense_copy(const Tensor& tensor);

}  // namespace athanor::detail
