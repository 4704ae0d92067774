#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// What may go wrong between ranks, for tests.
struct ThreadFaults {
  /// Every message takes up to so long, drawn from `seed`; 0: none does.
  std::chrono::microseconds delay{0};
  std::uint64_t seed = 0;
  /// Ranks must do everything in one order, on a duplicate of the network, too: as over NCCL before 2.26.
  bool in_order = false;
};

/// A job whose ranks are threads of one process. Nothing is buffered: a message is copied when its receiver
/// has asked for it, so that code which relies on buffers hangs here as it would with large messages
/// elsewhere.
class ThreadJob {
 public:
  explicit ThreadJob(int world_size, const ThreadFaults& faults = {});
  ~ThreadJob();

  Transport& transport(int rank);

  /// The rank is gone: who waits for it learns at once. From any thread.
  void lose(int rank);
  /// The rank falls silent: nothing it has begun, or begins, completes. Nobody is told. From any thread.
  void stop(int rank);

 private:
  struct Shared;
  class End;
  std::unique_ptr<Shared> shared_;
};

/// Calls f once per rank, each in a thread of its own with one thread for kernels. When one throws, the
/// others learn that it is gone; the first exception is thrown again when all have ended. A rank that returns
/// is gone, too.
void run_ranks(int world_size, const std::function<void(Transport&)>& f, const ThreadFaults& faults = {});
/// The same for a job the caller has made, to meddle with it.
void run_ranks(ThreadJob& job, int world_size, const std::function<void(Transport&)>& f);

}  // namespace athanor::dist
