#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "dist/launch/bootstrap.h"

// How ranks without MPI find each other: rank 0 hands a few bytes (NCCL's id of a communicator) to all others
// over TCP.
//
// A rank connects, as often as it takes, and says who it is: magic, version, number of ranks, its own, a hash
// of the job's id. Rank 0 answers: magic, a status, a length, so many bytes; and the rank, that it
// has them: one byte. One who is cut off before asks again. Who speaks otherwise (a port
// scanner, another job's rank) is sent away, and does no harm; nobody waits longer than the deadline.

namespace athanor::dist {

struct RendezvousOptions {
  std::chrono::milliseconds timeout{120'000};
};

/// Returns rank 0's `mine` on every rank; `mine` of the others is not looked at, and at most 64 KiB long.
/// Rank 0 listens at `place.listening`, where it is given that, or else at `place.port`.
/// Throws PeerLostError naming the ranks that did not come in time (on rank 0) or the address nobody answered
/// at (on the others); ArgumentError where rank 0 sends this one away, because it is of another job, of
/// another number of ranks, or a rank too many; BackendError where the port cannot be had.
std::vector<std::byte> share_from_rank_0(const Place& place, std::span<const std::byte> mine,
                                         const RendezvousOptions& options = {});

/// A socket that listens at a port of `host` which nobody uses, so that nobody can take it, and that port.
/// Inherited by child processes.
struct Listening {
  int socket = -1;
  int port = 0;
};
Listening listen_anywhere(const char* host = "127.0.0.1");

}  // namespace athanor::dist
