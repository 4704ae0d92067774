#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/collectives/collective.h"
#include "dist/collectives/communicator.h"
#include "dist/collectives/wait.h"

namespace athanor::dist {

/// Who pushes the collectives of a backward pass.
enum class Overlap : std::uint8_t {
  none,    ///< nobody, until the end: to compare with
  pumped,  ///< the backward pass itself, whenever a gradient is complete; where threads may not communicate
  thread,  ///< a thread of its own
};

/// Runs the collectives of the buckets, one at a time and strictly in the order of their numbers: every rank
/// has the same order, whatever is complete first on it. Results do not depend on the Overlap.
class BucketRunner {
 public:
  /// Messages number the buckets from 0 on or, `backwards`, down to 0. Throws ArgumentError where a thread is
  /// wanted and the transport does not allow it.
  BucketRunner(Communicator& comm, Overlap overlap, std::vector<std::unique_ptr<Collective>> collectives,
               bool backwards = false);
  ~BucketRunner();
  BucketRunner(const BucketRunner&) = delete;
  BucketRunner& operator=(const BucketRunner&) = delete;

  int launched() const { return launched_; }
  /// The next bucket in order is ready to be sent; its memory is the collective's until finish(), and so is
  /// the transport. Throws ArgumentError where another holds that, PeerLostError after an error.
  void launch();
  /// Where the caller pushes: does so. Throws PeerLostError.
  void pump();
  /// Returns when the first `count` are done, all of which must have been launched. Throws PeerLostError.
  void wait(int count);
  /// Returns when all are done, and begins anew. Throws PeerLostError; is of no use afterwards.
  void finish();

 private:
  void run_thread();
  void hand_over(int count);
  bool push(bool wait, int until);
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
  bool started_ = false;  // the collective `done_`, where the caller pushes

  std::mutex mutex_;     // of what follows, and of done_ where there is a thread
  int handed_over_ = 0;  // what the thread may run: all launched, or those that are waited for
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace athanor::dist
