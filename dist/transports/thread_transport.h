#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// Injected faults, for tests.
struct ThreadFaults {
  /// Maximum delay of a message, drawn from `seed`; 0: no delays.
  std::chrono::microseconds delay{0};
  std::uint64_t seed = 0;
  /// Ranks must use one order, also on a duplicate of the network: as over NCCL before 2.26.
  bool in_order = false;
};

/// A job whose ranks are threads of one process. Nothing is buffered: a message is copied only when its
/// receiver has asked for it. So code that relies on buffering hangs here, as it would elsewhere with large
/// messages.
class ThreadJob {
 public:
  explicit ThreadJob(int world_size, const ThreadFaults& faults = {});
  ~ThreadJob();

  Transport& transport(int rank);

  /// Loses the rank: ranks that wait for it are notified at once. From any thread.
  void lose(int rank);
  /// Silences the rank: none of its operations completes, without notice. From any thread.
  void stop(int rank);

 private:
  struct Shared;
  class End;
  std::unique_ptr<Shared> shared_;
};

/// Calls f once per rank, each in its own thread with one kernel thread. If one throws, the others see it as
/// lost; the first exception is rethrown when all have ended. A rank that has returned also counts as lost.
void run_ranks(int world_size, const std::function<void(Transport&)>& f, const ThreadFaults& faults = {});
/// The same for a job created by the caller, who can inject faults.
void run_ranks(ThreadJob& job, int world_size, const std::function<void(Transport&)>& f);

}  // namespace athanor::dist
