#pragma once

#include "simt/emulator/runtime.h"

namespace simt {

/// Called when a copy is queued, to come after some marks: remembers its source on the host, and poisons its
/// destination on the host.
void watch(Runtime& all, const Stream& stream, const Vector<Mark>& after, CopyWork& copy);

/// "host to device"
const char* copy_name(cudaMemcpyKind kind);

/// Throws KernelFault where the source on the host is no longer what it was when the copy was queued.
void run_copy(const CopyWork& copy);

}  // namespace simt
