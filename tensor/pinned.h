#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor {

/// An uninitialised tensor on the CPU in page-locked memory, which a GPU copies from and to by itself, while
/// the host goes on. Without a GPU, ordinary memory. Blocks of the exact sizes asked for are kept for the
/// next tensor; one that a queued copy still uses is not handed out before the copy is done.
Tensor empty_pinned(const Shape& shape, DType dtype);
/// Whether a tensor's memory is page-locked.
bool is_pinned(const Tensor& tensor);

struct PinnedStats {
  std::int64_t current = 0;  ///< bytes in live tensors
  std::int64_t cached = 0;   ///< bytes kept for the next
  std::int64_t growths = 0;  ///< how often the system was asked for more
};
PinnedStats pinned_stats();

/// The memory of `tensor` is in use by what `stream` holds now: it is handed out again only when that is
/// done. For memory used on another stream than the one that was current when it was made.
void record_stream(const Tensor& tensor, const Stream& stream);

}  // namespace athanor
