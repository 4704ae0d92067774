#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/collectives/communicator.h"
#include "dist/transports/staged_transport.h"
#include "dist/transports/thread_transport.h"
#include "kernels/cpu/context.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"

#if defined(ATHANOR_SIMT)
#include "simt/emulator/options.h"
#endif

// Ranks that are threads of this process, with their tensors on a device. Each has a stream of its own: ranks
// that share one would wait for each other in it.

namespace athanor::test {

inline constexpr int kMaxRanks = 4;
#if defined(ATHANOR_SIMT)
// Before the first call of the emulator's runtime.
inline const bool four_devices = (simt::options().devices = kMaxRanks, true);
#endif

/// Calls f(rank) in a thread and with a stream per rank; throws the first exception when all have ended.
inline void run_on_devices(int world, const std::function<Device(int)>& device_of,
                           const std::function<void(int)>& f) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        cpu_context().set_threads(1);
        const StreamGuard own(Stream::create(device_of(rank)));
        f(rank);
        const AllowSync end;
        current_stream(device_of(rank)).synchronize();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

/// What a collective that fails says of a lost rank; empty where it does not fail.
inline std::string error_of(dist::Communicator& comm, dist::Collective& collective, std::int64_t bucket) {
  return message_of<PeerLostError>([&] { comm.run(collective, bucket); });
}

/// All on one device, through memory of the host.
inline void run_staged_ranks(int world, const std::function<void(dist::Transport&)>& f,
                             const dist::ThreadFaults& faults = {}) {
  dist::ThreadJob job(world, faults);
  run_on_devices(
      world, [](int) { return device(); },
      [&](int rank) {
        struct Leaves {
          dist::ThreadJob& job;
          int rank;
          ~Leaves() { job.lose(rank); }
        } leaves{job, rank};
        dist::StagedTransport transport(job.transport(rank), device());
        f(transport);
      });
}

}  // namespace athanor::test
