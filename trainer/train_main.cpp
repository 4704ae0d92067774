#include "trainer/train_main.h"

#include <cstdio>
#include <memory>

#include "dist/launch/bootstrap.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/loggers/progress.h"
#include "trainer/run_main.h"
#include "trainer/run_on_ranks.h"
#include "trainer/signals.h"

namespace athanor {
namespace {

std::unique_ptr<Progress> progress_of(const TrainerConfig& config) {
  // Checkpoints have its state in any case, so that a run may go on with or without it.
  if (!config.progress) return std::make_unique<Progress>(nullptr, false);
  // For mpirun's ranks, isatty() is always true.
  if (dist::find_rank_info().launcher == dist::Launcher::mpirun)
    return std::make_unique<Progress>(stdout, false);
  return std::make_unique<Progress>();
}

}  // namespace

int train_on_ranks(TrainerConfig config, char** arguments, const dist::Networks& networks,
                   const std::function<FitReport(Trainer&)>& fit) {
  return run_on_ranks(config, arguments, networks, [&](dist::Transport* transport) {
    Trainer trainer(config, transport);
    if (trainer.rank() == 0) trainer.add(progress_of(config));
    const FitReport report = fit(trainer);
    if (report.stopped_by == StoppedBy::diverged && report.signal == 0 && trainer.rank() == 0) {
      std::fflush(stdout);
      terminal::say(stderr, "error: diverged: " + printable(trainer.why_stopped()));
    }
    return exit_code(report);
  });
}

int train_main(int argc, char** argv, const TrainerConfig& defaults, const dist::Networks& networks,
               const std::function<FitReport(Trainer&)>& fit, const std::function<void(Flags&)>& own) {
  return run_main(argc, argv, [&](int count, char** arguments) {
    say_what_ended();
    Flags flags;
    if (own) own(flags);
    return train_on_ranks(parse_flags(count, arguments, defaults, flags), arguments, networks, fit);
  });
}

}  // namespace athanor
