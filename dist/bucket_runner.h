#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/bucket_layout.h"
#include "dist/collectives/collective.h"
#include "dist/collectives/communicator.h"
#include "dist/collectives/wait.h"

namespace athanor::dist {

/// Runs the collectives of the buckets strictly in order of their numbers. So every rank has the same order,
/// whichever bucket it completes first. Results do not depend on the Overlap. On a device, the next one is
/// queued as soon as the work of the one before is, so that the stream does not wait for the host between two
/// buckets; elsewhere one runs at a time.
class BucketRunner {
 public:
  /// Numbers the buckets from 0 up or, if `backwards`, down to 0. Throws ArgumentError if a thread is
  /// requested but the transport does not allow it.
  BucketRunner(Communicator& comm, Overlap overlap, std::vector<std::unique_ptr<Collective>> collectives,
               bool backwards = false);
  ~BucketRunner();
  BucketRunner(const BucketRunner&) = delete;
  BucketRunner& operator=(const BucketRunner&) = delete;

  int launched() const { return launched_; }
  /// The next bucket in order is ready to send. Until finish() the collective owns its memory and the
  /// transport. Throws ArgumentError if the transport is already held, PeerLostError after an error.
  void launch();
  /// Advances the collectives if the caller must do that. Throws PeerLostError.
  void pump();
  /// Waits for the first `count` collectives, which must have been launched. Throws PeerLostError.
  void wait(int count);
  /// Waits for all, and resets. Throws PeerLostError; then the object is unusable.
  void finish();

 private:
  void run_thread();
  void hand_over(int count);
  bool advance(bool wait, int until);
  Collective& start(int index);
  WaitOptions options_of(int index) const;
  void queue_next(int index, int until);
  int number_of(int index) const {
    return backwards_ ? static_cast<int>(collectives_.size()) - 1 - index : index;
  }

  Communicator& comm_;
  Overlap overlap_;
  bool backwards_;
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::int64_t> launch_us_;  // by FlightRecord::now_us()
  int launched_ = 0;
  int done_ = 0;
  int started_ = 0;                 // at most two more than are done; the advancing thread's
  std::vector<std::int64_t> seqs_;  // of the started ones, in the flight record

  std::mutex mutex_;     // guards the following, and done_ if there is a thread
  int handed_over_ = 0;  // those the thread may run: all launched, or those waited for
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace athanor::dist
