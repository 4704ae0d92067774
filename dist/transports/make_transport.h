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
  RankInfo info = {};  ///< local_rank and local_size are what the network found out, where it knows better
  std::unique_ptr<Transport> below = {};  ///< the host's network, where the GPUs' memory goes over it
  std::unique_ptr<Transport> transport = {};
  std::string network = {};  ///< between GPUs, for the first line of a run: ", NCCL"
  /// How long the others are waited for where the network begins and ends.
  std::chrono::milliseconds timeout{300'000};
  /// Ends all ranks at once with an exit code, without waiting for any: for one that cannot go on. Does not
  /// return.
  std::function<void(int exit_code)> abort = {};
};

/// The networks between processes that this build has, and the one function that picks one: the seam where
/// others come in. In the target athanor_mpi, where the build found MPI; else in athanor_nccl, where it found
/// that; else in the library itself.
struct Networks {
  bool mpi = false, nccl = false;
  /// Joins the job of `job.info`, whose ranks hold their tensors on `device`. GPUs talk through NCCL, whose
  /// id goes round by MPI under mpirun, by rendezvous.h elsewhere; where ranks share a GPU, which its UUID
  /// says, or there is no NCCL, through pinned memory and MPI (staged_transport.h), which `network` says.
  /// Throws BackendError where this build has no network for that, and where MPI does not see the ranks that
  /// `job.info` speaks of. Then others may have joined, and wait: `job` holds what has been made so far, and
  /// `job.abort`, where it is set, ends them all.
  void (*join)(ProcessGroup& job, Device device) = nullptr;
};
Networks networks();

}  // namespace athanor::dist
