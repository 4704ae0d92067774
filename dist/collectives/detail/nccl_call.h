#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <nccl.h>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

/// One call of NCCL's that is part of a group: an end of a message, or what all ranks do together.
struct NcclCall {
  enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, all_gather, reduce, broadcast };

  Kind kind;
  const std::byte* from;
  std::byte* to;
  std::size_t count;  ///< elements, as NCCL counts them for that call
  ncclDataType_t type = ncclUint8;
  int peer = -1;  ///< the other end, or the root; -1: all are alike
  ncclRedOp_t op = ncclSum;

  ncclResult_t make(ncclComm_t comm, cudaStream_t stream) const;
};

/// Makes a call part of the next group; complete when that is in the stream.
using NcclPost = std::function<Request(const NcclCall&)>;

/// NCCL's own collective as one of ours. Null for maxima of floating values, since
/// NCCL does not say what becomes of NaN. Where pieces are unequal, which NCCL's calls do not take, it is a
/// group of one ncclReduce or ncclBroadcast for each.
std::unique_ptr<Collective> make_nccl_native(Transport& transport, const NativeCall& call, NcclPost post);

}  // namespace athanor::dist
