#pragma once

#include <span>

#include "dist/collectives/group.h"
#include "optim/flat.h"

namespace athanor::dist {

/// A range of a flat tensor as a separate tensor.
inline Tensor slice(const Tensor& flat, const Range& range) {
  return slice_of(flat, range.begin, {range.count()});
}

/// The bytes of a range of a flat tensor on the CPU.
inline std::span<std::byte> bytes_of(const Tensor& flat, const Range& range) {
  const auto element = static_cast<std::int64_t>(size_of(flat.dtype()));
  return {flat.raw_data() + range.begin * element, static_cast<std::size_t>(range.count() * element)};
}

/// `count` elements of `dtype` from element `begin` on, in the memory of a flat u8 tensor, which must be
/// aligned for `dtype`.
inline Tensor as_type(const Tensor& memory, DType dtype, std::int64_t begin, std::int64_t count) {
  const std::int64_t first = memory.offset() / static_cast<std::int64_t>(size_of(dtype)) + begin;
  return Tensor::wrap(memory.storage(), first, {count}, {1}, dtype);
}

}  // namespace athanor::dist
