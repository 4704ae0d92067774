#include "trainer/train_main.h"

#include <cstdio>
#include <memory>

#include "dist/launch/launcher.h"
#include "trainer/loggers/progress.h"
#include "trainer/run_main.h"
#include "trainer/run_on_ranks.h"

namespace athanor {

int train_on_ranks(TrainerConfig config, char** arguments, const dist::Networks& networks,
                   const std::function<FitReport(Trainer&)>& fit) {
  return run_on_ranks(config, arguments, networks, [&](dist::Transport* transport) {
    Trainer trainer(config, transport);
    // For mpirun's ranks, isatty() is always true.
    if (config.progress && !transport) {
      trainer.add(std::make_unique<Progress>());
    } else if (config.progress && trainer.rank() == 0) {
      trainer.add(std::make_unique<Progress>(stdout, dist::launcher_has_terminal()));
    }
    return exit_code(fit(trainer));
  });
}

int train_main(int argc, char** argv, const TrainerConfig& defaults, const dist::Networks& networks,
               const std::function<FitReport(Trainer&)>& fit, const std::function<void(Flags&)>& own) {
  return run_main(argc, argv, [&](int count, char** arguments) {
    Flags flags;
    if (own) own(flags);
    return train_on_ranks(parse_flags(count, arguments, defaults, flags), arguments, networks, fit);
  });
}

}  // namespace athanor
