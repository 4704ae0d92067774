#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor {

/// An uninitialised CPU tensor in page-locked memory, so that a GPU can copy asynchronously. Without a GPU,
/// ordinary memory. Freed blocks are cached and reused for the same size; a block that a queued copy still
/// uses is not reused before the copy is done.
Tensor empty_pinned(const Shape& shape, DType dtype);
/// Whether a tensor's memory is page-locked.
bool is_pinned(const Tensor& tensor);

struct PinnedStats {
  std::int64_t current = 0;  ///< bytes in live tensors
  std::int64_t cached = 0;   ///< bytes cached for reuse
  std::int64_t growths = 0;  ///< requests to the system for more memory
};
/// Page-locked memory of this process.
PinnedStats pinned_stats();

/// Marks the memory of `tensor` as used by the work now queued on `stream`: it is reused only after that
/// work. Needed for memory used on another stream than the one that was current at its creation.
void record_stream(const Tensor& tensor, const Stream& stream);

}  // namespace athanor
