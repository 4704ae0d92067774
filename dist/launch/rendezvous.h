#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dist/launch/bootstrap.h"

// How ranks without MPI find each other: rank 0 sends a few bytes (the id of an NCCL communicator) to all
// others over TCP.
//
// A rank connects, repeatedly if needed. Each end draws 16 random bytes (a nonce) for the conversation.
//
//   rank:   magic, hash of the job's id, number of ranks, its own, nonce
//   rank 0: magic, a status, nonce
//   rank:   HMAC-SHA-256 over "client" and both messages, keyed by the job's secret
//   rank 0: a status, a length, the same over "rank 0", both messages and the bytes; then the bytes
//   rank:   one byte: it has them, and its place is taken
//
// So both ends prove that they know the secret without sending it, and recorded messages cannot be replayed.
// The bytes themselves are not encrypted. Without a secret the key is empty, and any process can take a
// rank's place: warn_of_strangers().
//
// Rank 0 answers one client at a time, when its first message is there: one that says nothing delays no
// other. A disconnected rank tries again; any other client (a port scanner, another job's rank) is refused,
// or dropped after 2 s. All waits end at the deadline. Source: RFC 2104 (HMAC); ISO/IEC 9798-4 (proof of a
// key by two nonces).

namespace athanor::dist {

/// Returns rank 0's `mine` on every rank, at most 64 KiB; `mine` of other ranks is ignored. Rank 0 listens on
/// the socket `info.listening` if given, or else at `info.port` of `info.host`, or of all addresses if that
/// is not an address of this machine. Throws PeerLostError naming the ranks that did not come in time (on
/// rank 0) or the address that did not answer (on the others); ArgumentError if rank 0 refuses this rank
/// (another job, number of ranks or secret, a duplicate rank) or does not know the secret; BackendError if
/// the port is not available.
std::vector<std::byte> share_from_rank_0(const RankInfo& info, std::span<const std::byte> mine,
                                         std::chrono::milliseconds timeout);

/// A one-line warning if ranks meet without a secret at an address that other machines can reach; else "".
std::string warn_of_strangers(const RankInfo& info);
/// 128 random bits as 32 hex digits, as a job's secret.
std::string draw_secret();

/// A socket that listens at an unused port of 127.0.0.1, and that port, which no other process can take.
struct Listening {
  int socket = -1;
  int port = 0;
};
Listening listen_anywhere();

}  // namespace athanor::dist
