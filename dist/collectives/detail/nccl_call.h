#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <nccl.h>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

/// An NCCL call in a group: one end of a message, or a collective.
struct NcclCall {
  enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, all_gather, reduce, broadcast };

  Kind kind;
  const std::byte* from;
  std::byte* to;
  std::size_t count;  ///< elements, in NCCL's meaning for that call
  ncclDataType_t type = ncclUint8;
  int peer = -1;  ///< the other end, or the root; -1: symmetric
  ncclRedOp_t op = ncclSum;

  ncclResult_t make(ncclComm_t comm, cudaStream_t stream) const;
};

/// Adds a call to the next group; complete when the group is in the stream.
using NcclPost = std::function<Request(const NcclCall&)>;

/// NCCL's own collective as a Collective. Null for maxima of floating values, since NCCL does not specify
/// NaN. For unequal pieces, which NCCL's calls do not support, it is a group with one ncclReduce or
/// ncclBroadcast per piece.
std::unique_ptr<Collective> make_nccl_native(Transport& transport, const NativeCall& call, NcclPost post);

}  // namespace athanor::dist
