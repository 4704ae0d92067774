#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

namespace engine {

/// Thrown where a rank waits for another that will never answer.
class PeerLost final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the ranks of a job share: yours to define, in ranks.cpp.
struct Job;

/// One of several threads that train the same network, as it sees the others: messages to them and from them.
/// One thread at a time may communicate for a rank. A rank or size out of range throws std::invalid_argument.
class Rank {
 public:
  Rank(Job& job, int rank, int world_size) : job_(job), rank_(rank), world_size_(world_size) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// From 0 to world_size() - 1.
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Sends a copy of the values; never waits. Messages from one rank to another arrive in the order in which
  /// they were sent.
  void send(int to, std::span<const float> values);
  /// The next message from that rank: waits until there is one. Throws PeerLost if none is there and either a
  /// rank has failed, or `from` has ended.
  std::vector<float> receive(int from);

  /// What send() has sent so far: 4 bytes for each value. Any thread may ask.
  std::int64_t sent_bytes() const { return sent_bytes_; }
  std::int64_t sent_messages() const { return sent_messages_; }

 private:
  Job& job_;
  int rank_, world_size_;
  std::atomic<std::int64_t> sent_bytes_ = 0, sent_messages_ = 0;
};

/// Runs f on world_size threads, each a rank, and returns when all have ended. A rank fails if f throws
/// there; then all ranks that wait, or begin to wait, throw PeerLost. If any has failed, throws
/// std::runtime_error with the first failure, such as "rank 2 of 4: the disk is full".
void run_ranks(int world_size, const std::function<void(Rank&)>& f);

}  // namespace engine
