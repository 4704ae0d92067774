#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "dist/launch/bootstrap.h"
#include "dist/transports/transport.h"
#include "tensor/device.h"

namespace athanor::dist {

/// A process that has joined its job.
struct ProcessGroup {
  RankInfo info = {};  ///< local_rank and local_size as found by the network, if it knows better
  std::unique_ptr<Transport> below = {};  ///< the host's network, if GPU memory is sent through it
  std::unique_ptr<Transport> transport = {};
  std::string network = {};  ///< between GPUs, for the first line of a run: ", NCCL"
  /// How long to wait for other ranks at the network's beginning and end.
  std::chrono::milliseconds timeout{300'000};
  /// Ends all ranks at once with an exit code, without waiting for any: for a rank that cannot continue. Does
  /// not return.
  std::function<void(int exit_code)> abort = {};
};

/// The networks between processes in this build, and the function that picks one: the extension point for
/// others. Defined in the target athanor_mpi if the build found MPI, else in athanor_nccl if it found NCCL,
/// else in the library itself.
struct Networks {
  bool nccl = false;
  /// Joins the job of `job.info`, whose ranks hold their tensors on `device`. On the CPU, ranks of --devices
  /// use shared memory, others MPI. GPUs use NCCL; its id is distributed by MPI under mpirun, by rendezvous.h
  /// otherwise. If ranks share a GPU, detected by its UUID, or there is no NCCL, GPUs use pinned memory and
  /// the CPU's network (staged_transport.h), and `network` says so. Throws BackendError if this build lacks a
  /// network, or MPI does not see the ranks of `job.info`. Other ranks may then have joined and wait: `job`
  /// holds all that was created, and `job.abort`, if set, ends them all.
  void (*join)(ProcessGroup& job, Device device) = nullptr;
};
Networks networks();

}  // namespace athanor::dist
