#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// One who waits and may lose patience. Every wait of dist/ goes through it: MPI itself says nothing when a
/// rank is stopped or a cable cut, and waits for ever.
class StallTimeout {
 public:
  explicit StallTimeout(std::chrono::milliseconds limit) : limit_(limit), since_(Clock::now()) {}

  /// To be called while nothing can be done: yields the core at first, then sleeps for some microseconds.
  /// False when `progress` has not changed for as long as the limit. Time in which this process was itself
  /// stopped does not count: it would blame another for it.
  bool wait(std::int64_t progress);

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit_;
  Clock::time_point since_, last_ = since_;
  std::int64_t progress_ = -1;
  int idle_ = 0;
};

struct WaitOptions {
  /// How long a collective may stand still; a slow one that gets on is none of our business.
  std::chrono::milliseconds timeout{300'000};
  std::int64_t bucket = -1;                 ///< for messages: which bucket of gradients this is; -1: none
  const std::atomic<bool>* stop = nullptr;  ///< gives up when this becomes true
  bool last = true;  ///< with it ends what is on record; false: it was the beginning of that
};

/// advance(), with the operation's name and bucket in the error where a rank is gone. Puts on record how far
/// it is, and calls the Session's on_failure where it fails, but not where it is stopped.
bool push(Collective& collective, Transport& transport, const WaitOptions& options = {});

/// Pushes a collective that has been started until it is done. Throws PeerLostError naming the operation, the
/// bucket and the rank whose message is missing.
void finish(Collective& collective, Transport& transport, const WaitOptions& options = {});

}  // namespace athanor::dist
