#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "dist/collectives/communicator.h"
#include "tensor/state_dict.h"

// How the state of a job becomes one checkpoint, which does not show how many ranks wrote it.
//
// Saving: every rank makes the same dictionary, in which what ZeRO-1 shards are ShardedTensors: a rank's own
// runs of elements of a logical tensor, without padding. Rank 0 writes the file; whenever it comes to a
// sharded tensor, the others send it their runs, a few MiB at a time:
//
//     const StateDict state = save_parts(parts);               // all ranks
//     dist::gather_state(comm, state, [&](const dist::ReadTensor& read) {
//       folder.save(step, state, read);                        // rank 0 alone
//     });
//
// Nothing is sent for what every rank has as a whole (all of it, in DDP); of that, rank 0's values count: so
// settle() and broadcast_buffers() come first.
//
// Loading needs no messages: every rank maps the file, on which they must agree, and takes its own runs out
// of the whole tensors. Any number of ranks, DDP or ZeRO-1, loads what any other has saved.

namespace athanor::dist {

/// Hands the bytes of an entry's whole tensor to `sink`, from first to last, in pieces.
using ReadTensor =
    std::function<void(const StateDict::Entry&, const std::function<void(std::span<const std::byte>)>& sink)>;

/// That of one rank, which has all of every tensor.
void read_whole(const StateDict::Entry& entry, const std::function<void(std::span<const std::byte>)>& sink);

/// A call of all ranks, whose `state`s must have parts of the same tensors. Rank 0 calls `write`, which may
/// read each entry once, in any order; the others send what it reads, and hear from rank 0 however long it
/// takes (where the transport lets a second thread call). All ranks return, or all throw: rank 0 what `write`
/// threw, the others IoError with its words. Takes a few MiB on every rank. Throws ArgumentError where states
/// differ, or runs do not make up a tensor; PeerLostError.
void gather_state(Communicator& comm, const StateDict& state,
                  const std::function<void(const ReadTensor& read)>& write);

}  // namespace athanor::dist
