#pragma once

#include <nccl.h>

namespace athanor::dist {

/// The NCCL functions in use: our member's name and the function's.
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

/// NCCL's functions, loaded on first use, so that programs on one GPU or none run without NCCL.
struct NcclApi {
#define ATH_MEMBER(member, function) decltype(&::function) member = nullptr;
  ATH_NCCL_FUNCTIONS(ATH_MEMBER)
#undef ATH_MEMBER
};

/// Throws BackendError if libnccl.so.2 is not found or too old.
const NcclApi& nccl_api();

/// Whether this version of NCCL allows concurrent work on two communicators of a GPU in an order that differs
/// between ranks. Source: NCCL's user guide, "Using multiple NCCL communicators concurrently".
constexpr bool nccl_is_concurrent(int version) {
  return version >= 22600;
}

}  // namespace athanor::dist
