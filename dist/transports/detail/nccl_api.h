#pragma once

#include <nccl.h>

namespace athanor::dist {

/// What is used of NCCL: the member's name here, and the function's.
#define ATH_NCCL_FUNCTIONS(X)           \
  X(get_version, ncclGetVersion)        \
  X(get_unique_id, ncclGetUniqueId)     \
  X(init, ncclCommInitRankConfig)       \
  X(finalize, ncclCommFinalize)         \
  X(destroy, ncclCommDestroy)           \
  X(abort, ncclCommAbort)               \
  X(async_error, ncclCommGetAsyncError) \
  X(error_string, ncclGetErrorString)   \
  X(last_error, ncclGetLastError)       \
  X(group_start, ncclGroupStart)        \
  X(group_end, ncclGroupEnd)            \
  X(send, ncclSend)                     \
  X(receive, ncclRecv)                  \
  X(all_reduce, ncclAllReduce)          \
  X(reduce_scatter, ncclReduceScatter)  \
  X(all_gather, ncclAllGather)          \
  X(reduce, ncclReduce)                 \
  X(broadcast, ncclBroadcast)

/// NCCL's functions, found when one is first asked for: programs run on one GPU, or none, where it is not
/// installed.
struct NcclApi {
#define ATH_MEMBER(member, function) decltype(&::function) member = nullptr;
  ATH_NCCL_FUNCTIONS(ATH_MEMBER)
#undef ATH_MEMBER
};

/// Throws BackendError where libnccl.so.2 is not found, or is older than what is used of it.
const NcclApi& nccl_api();

/// Whether NCCL of that version allows what is under way on two communicators of a GPU at the same time to
/// differ in its order between ranks. Source: NCCL's user guide, "Using multiple NCCL communicators
/// concurrently".
constexpr bool nccl_is_concurrent(int version) {
  return version >= 22600;
}

}  // namespace athanor::dist
