#pragma once

#include <cstddef>

#include "tensor/tensor.h"

// Tensors of a device, seen by the host. Private to tensor/.

namespace athanor::detail {

/// Bytes a dense tensor of that shape takes. Throws ArgumentError naming op where no memory could hold it.
std::size_t checked_bytes(const Shape& shape, DType dtype, const char* op);

/// The tensor itself where it is on the CPU; else one on the CPU of the same strides, with a copy of the
/// bytes between its first and last element. A wait, which the caller counts.
Tensor on_host(const Tensor& tensor);

/// The value `offset` elements from the first one of a tensor on the CPU.
double element(const Tensor& tensor, std::int64_t offset);

/// A dense copy of a tensor on the CPU, whatever its strides.
Tensor dense_copy(const Tensor& tensor);

}  // namespace athanor::detail
