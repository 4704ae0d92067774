#pragma once

#include <functional>

#include "dist/transports/make_transport.h"
#include "trainer/config.h"

namespace athanor {

/// What a training program does between its flags and its Trainer:
///
///     return run_on_ranks(config, argv, dist::networks(), [&](dist::Transport* transport) {
///       Trainer trainer(config, transport);
///       ...
///     });
///
/// - Nobody has started ranks, and --devices asks for one: calls `body` with null.
/// - --devices asks for several: starts this program as often, with `argv` (null at its end), through mpirun,
///   or, where the build has NCCL, as one process per GPU; calls nothing, and returns their exit code.
/// - mpirun, torchrun, Slurm or NCCL_COMM_ID speak (dist/launch/bootstrap.h): joins that job and calls
///   `body`. Fills in config.device, strategy, local_ranks and ranks_note. What `body` throws is said in one
///   line with the rank, and ends all ranks with the exit code of run_main(); once, where all make the same
///   mistake.
///
/// Throws ArgumentError where launcher, --devices and --strategy contradict each other; BackendError where
/// this build or machine lacks what it takes.
int run_on_ranks(TrainerConfig& config, char** argv, const dist::Networks& networks,
                 const std::function<int(dist::Transport*)>& body);

}  // namespace athanor
