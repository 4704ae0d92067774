#pragma once

#include "tensor/cuda/runtime.h"

// What must be known of captures by those who would wait, or ask the system for memory: both end a capture.

namespace athanor::cuda {

/// Whether work queued on `stream` goes into a graph instead. Throws BackendError, with the error of earlier
/// work where that failed.
bool is_capturing(cudaStream_t stream);

/// The same for those who must not throw: an error counts as yes, and stays for the next who asks.
bool may_be_capturing(cudaStream_t stream) noexcept;

/// Whether that is so of a stream that is current for this thread, on any device.
bool thread_is_capturing();

/// Throws Error, which leaves the capture whole, where the thread captures: "op: while a graph is captured,
/// the host must not wait ...".
void refuse_wait_in_capture(const char* op);

}  // namespace athanor::cuda
