#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "dist/collectives/communicator.h"
#include "tensor/state_dict.h"

// Gathers the state of a job into one checkpoint that does not depend on the number of ranks.
//
// Saving: every rank makes the same dictionary, in which tensors sharded by ZeRO-1 are ShardedTensors: a
// rank's own runs of elements of a logical tensor, without padding. Rank 0 writes the file; for each sharded
// tensor, the other ranks send it their runs, a few MiB at a time:
//
//     const StateDict state = save_parts(parts);               // all ranks
//     dist::gather_state(comm, state, [&](const dist::ReadTensor& read) {
//       folder.save(step, state, read);                        // rank 0 alone
//     });
//
// Tensors that every rank has as a whole (all of them, in DDP) are not sent. Rank 0's values are saved, so
// call settle() and broadcast_buffers() first.
//
// Loading needs no messages: every rank maps the file, which must be the same for all, and takes its own runs
// from the whole tensors. Any number of ranks, DDP or ZeRO-1, can load any checkpoint.

namespace athanor::dist {

/// Passes the bytes of an entry's whole tensor to `sink`, in order, in pieces.
using ReadTensor =
    std::function<void(const StateDict::Entry&, const std::function<void(std::span<const std::byte>)>& sink)>;

/// The same on a single rank, which has every tensor as a whole.
void read_whole(const StateDict::Entry& entry, const std::function<void(std::span<const std::byte>)>& sink);

/// A call of all ranks, whose `state`s must have parts of the same tensors. Rank 0 calls `write`, which may
/// read each entry once, in any order. The other ranks send what it reads, and hear from rank 0 as long as it
/// takes (if the transport allows calls of a second thread). All ranks return, or all throw: rank 0 what
/// `write` threw, the others IoError with its text. Uses a few MiB per rank. Throws ArgumentError if states
/// differ or runs do not tile a tensor; PeerLostError.
void gather_state(Communicator& comm, const StateDict& state,
                  const std::function<void(const ReadTensor& read)>& write);

}  // namespace athanor::dist
