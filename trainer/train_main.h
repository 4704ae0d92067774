#pragma once

#include <functional>

#include "dist/transports/make_transport.h"
#include "trainer/flags/flags.h"
#include "trainer/trainer.h"

namespace athanor {

/// The main() of a training program: parses the flags over `defaults`, starts or joins the ranks, shows
/// progress, and calls `fit` with this rank's Trainer. Returns the exit code; an exception becomes one line
/// (trainer/run_main.h).
///
///     int main(int argc, char** argv) {
///       return train_main(argc, argv, {.program = "denoise"}, dist::networks(), [](Trainer& trainer) {
///         Denoise task;
///         task.networks().initialize(trainer.config().seed);
///         return trainer.fit(task, *digits(Split::train), *digits(Split::test));
///       });
///     }
///
/// `networks`: the communication libraries the program is linked with. `own` adds the program's own flags
/// (trainer/flags/flags.h).
int train_main(int argc, char** argv, const TrainerConfig& defaults, const dist::Networks& networks,
               const std::function<FitReport(Trainer&)>& fit, const std::function<void(Flags&)>& own = {});

/// The part after parsing flags: starts or joins the ranks, and so on. `arguments`: those of main().
int train_on_ranks(TrainerConfig config, char** arguments, const dist::Networks& networks,
                   const std::function<FitReport(Trainer&)>& fit);

}  // namespace athanor
