#pragma once

#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "tensor/tensor.h"

namespace athanor {

inline constexpr std::size_t kSliceAlignment = 128;  ///< bytes: a cache line of GPUs, two of the CPU

/// Rounds up: the number of elements before the next slice may begin.
constexpr std::int64_t align_elements(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// `size` zeros on `device`, the first one 128-byte aligned.
inline Tensor make_flat(std::int64_t size, DType dtype, Device device) {
  const auto slack = static_cast<std::int64_t>(kSliceAlignment / size_of(dtype));
  const Tensor raw = Tensor::empty({size + slack}, {dtype, device});
  const std::size_t off = reinterpret_cast<std::uintptr_t>(raw.raw_data()) % kSliceAlignment;
  const std::size_t skip = off == 0 ? 0 : (kSliceAlignment - off) / size_of(dtype);
  const Tensor flat = raw.view_as_strided({size}, {1}, static_cast<std::int64_t>(skip));
  on_device(device, [&](auto& context) { kernels::fill(context, flat, 0); });
  return flat;
}

/// A tensor of `shape` at element `begin` of a flat tensor: a separate tensor with its own version.
inline Tensor slice_of(const Tensor& flat, std::int64_t begin, const Shape& shape) {
  return Tensor::wrap(flat.storage(), flat.offset() + begin, shape, contiguous_strides(shape), flat.dtype());
}

}  // namespace athanor
