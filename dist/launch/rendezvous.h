#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dist/launch/bootstrap.h"

// How ranks without MPI find each other: rank 0 hands a few bytes (NCCL's id of a communicator) to all others
// over TCP.
//
// A rank connects, as often as it takes. Each end draws 16 random bytes (a nonce) for the conversation.
//
//   rank:   magic, hash of the job's id, number of ranks, its own, nonce
//   rank 0: magic, a status, nonce
//   rank:   HMAC-SHA-256 over "client" and both messages, keyed by the job's secret
//   rank 0: a status, a length, the same over "rank 0", both messages and the bytes; so many bytes
//   rank:   one byte: it has them
//   rank 0: a status: the place is the rank's, or another has come for it meanwhile
//
// So both ends prove that they know the secret, which stays where it is, and nothing that was heard once is
// of use again. The bytes themselves can be read on the way. Without a secret the key is empty, and anybody
// can take a rank's place: warn_of_strangers().
//
// Rank 0 listens to several at a time. One who is cut off asks again; who speaks otherwise (a port scanner,
// another job's rank) is sent away or left after 5 s; nobody waits longer than the deadline.
// Source: RFC 2104 (HMAC); ISO/IEC 9798-4 (proof of a key by two nonces).

namespace athanor::dist {

/// Returns rank 0's `mine` on every rank; `mine` of the others is not looked at, and at most 64 KiB long.
/// Rank 0 listens at `info.listening`, where it is given that, or else at `info.port` of the address
/// `info.host`, or of all addresses where that is not this machine's.
/// Throws PeerLostError naming the ranks that did not come in time (on rank 0) or the address nobody answered
/// at (on the others); ArgumentError where rank 0 sends this one away (another job, number of ranks or
/// secret, a rank too many) or does not know the secret; BackendError where the port cannot be had.
std::vector<std::byte> share_from_rank_0(const RankInfo& info, std::span<const std::byte> mine,
                                         std::chrono::milliseconds timeout);

/// One line where ranks would meet without a secret at an address that other machines reach; else empty.
std::string warn_of_strangers(const RankInfo& info);
/// 128 random bits as 32 hex digits: a secret for one job.
std::string draw_secret();

/// A socket that listens at a port of `host` which nobody uses, so that nobody can take it, and that port.
struct Listening {
  int socket = -1;
  int port = 0;
};
Listening listen_anywhere(const char* host = "127.0.0.1");

}  // namespace athanor::dist
