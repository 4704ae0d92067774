#pragma once

#include <nccl.h>

// For tests of who uses the stand-in for NCCL.

namespace simt {

/// What ncclCommGetAsyncError says from now on for that rank: as if NCCL had found it, in the network say.
void break_communicators(int rank, ncclResult_t error, const char* text);
/// Communicators that were made and neither destroyed nor aborted.
int live_communicators();

}  // namespace simt
