#pragma once

#include <functional>

#include "dist/transports/make_transport.h"
#include "trainer/config.h"

namespace athanor {

/// The step of a training program between its flags and its Trainer:
///
///     return run_on_ranks(config, argv, dist::networks(), [&](dist::Transport* transport) {
///       Trainer trainer(config, transport);
///       ...
///     });
///
/// - No launcher, and --devices asks for one rank: calls `body` with null.
/// - --devices asks for several: starts the program that often with `argv` (terminated by null), with NCCL as
///   one process per GPU; does not call `body`; returns their exit code.
/// - Started by that, mpirun, torchrun, Slurm or with NCCL_COMM_ID (dist/launch/bootstrap.h): joins that job,
///   fills in config.device, strategy, local_ranks and ranks_note, and calls `body`. An exception of `body`
///   becomes one line with its rank, once if all ranks fail alike, and ends all ranks with run_main()'s exit
///   code.
///
/// Throws ArgumentError if launcher, --devices and --strategy contradict each other; BackendError if this
/// build or machine lacks a requirement.
int run_on_ranks(TrainerConfig& config, char** argv, const dist::Networks& networks,
                 const std::function<int(dist::Transport*)>& body);

}  // namespace athanor
