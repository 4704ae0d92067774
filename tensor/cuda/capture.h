#pragma once

#include "tensor/cuda/runtime.h"

// Queries about graph captures, for code that would wait or request system memory: both abort a capture.

namespace athanor::cuda {

/// Whether work queued on `stream` goes into a graph instead. Throws BackendError, with the error of earlier
/// work if that failed.
bool is_capturing(cudaStream_t stream);

/// The same without throwing: an error counts as true, and remains for the next query.
bool may_be_capturing(cudaStream_t stream) noexcept;

/// Whether any current stream of this thread, on any device, is capturing.
bool thread_is_capturing();

/// Throws Error, which leaves the capture intact, if the thread is capturing: "op: while a graph is captured,
/// the host must not wait ...".
void refuse_wait_in_capture(const char* op);

}  // namespace athanor::cuda
