#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/preprocess.h"
#include "kernels/step_state.h"
#include "optim/schedule.h"
#include "tensor/state_dict.h"
#include "trainer/bottleneck.h"
#include "trainer/callback.h"
#include "trainer/metric_sums.h"

// What a checkpoint of a training run holds. Every part of the run that has state writes one dictionary and
// reads one; they are joined under prefixes:
//
//     settings.     what must be the same in the run that goes on
//     run.          where the run stands: RunPosition
//     step.         StepState
//     callbacks.X.  of each callback that has state, under its name
//     optimizer.  ema.  model.     by the names of the parameters, whole and unpadded

namespace athanor {

/// Where a run stands between two steps, besides its tensors and the step's scalars.
struct RunPosition {
  std::int64_t epoch = 0;            ///< 0 is the first
  std::int64_t epoch_samples = 0;    ///< delivered in this epoch so far
  std::int64_t epoch_steps = 0;      ///< in this epoch so far; > 0 also at its end, until it is reported
  std::int64_t attempted = 0;        ///< steps
  std::int64_t trained_samples = 0;  ///< in the epochs before
  double train_s = 0;                ///< in the epochs before
  double epoch_began_s = 0;          ///< in seconds since training began
  double rate_scale = 1;             ///< of all learning rates, by callbacks
  int threads = 0;                   ///< that --threads auto has chosen; 0: it was not asked
  double elapsed_s = 0;              ///< since training began, not counting the time between two processes
  Times times;
  Metrics validation;         ///< the last one
  bool validated = false;     ///< the weights are still those of that validation
  bool averages_hold = true;  ///< nobody wrote to the weights behind their running average
  /// Ended by a callback: nothing is left to do but the rest after the last step.
  std::optional<Ended> ended;
};

StateDict state_of(const RunPosition& position);
/// Throws ArgumentError on a missing or extra entry, or a value out of range.
RunPosition position_from(const StateDict& state);

StateDict state_of(const StepState& step);
StepState step_from(const StateDict& state);

/// One of the things that a run's results depend on and a checkpoint cannot restore.
struct Setting {
  std::string name;    ///< in checkpoints
  std::string called;  ///< what a user knows it by: a flag, or a part of the program or of the data
  std::string value;
  std::string unset = {};  ///< the value that stands for a flag that is not given
  bool may_lack = false;   ///< is not written where it is unset, as in checkpoints older than the flag
  bool may_grow = false;   ///< a whole number, which the run that goes on may have more of
  /// Where one of these differs, so does this, and nothing is said of it.
  std::vector<std::string> follows = {};
};
/// `schedule_steps` are those that the learning rates were made for: in a run that goes on for longer than it
/// was begun for, fewer than it makes.
std::vector<Setting> settings_of(const FitInfo& info, const Normalization& pixels,
                                 const std::vector<Schedule>& schedules, std::int64_t schedule_steps,
                                 const std::string& optimizer);
StateDict state_of(const std::vector<Setting>& settings);
/// Of saved settings: the number of steps that learning rates were made for.
std::int64_t saved_schedule_steps(const StateDict& saved);
/// Throws ArgumentError naming each setting that is another in `saved` than in `mine`, and both values; but
/// those that may have grown, where the run `goes_on`.
void check_settings(const StateDict& saved, const std::vector<Setting>& mine, bool goes_on);
/// `schedule`, and from step `steps` on the rate of the step before.
Schedule held_after(Schedule schedule, std::int64_t steps);

/// A part of a run: `load` takes over what `save` gave, or throws before it has changed anything.
struct StatePart {
  std::string prefix;  ///< "optimizer."
  std::function<StateDict()> save;
  std::function<void(const StateDict&)> load;
};

/// All parts in one dictionary.
StateDict save_parts(std::span<const StatePart> parts);
/// Loads all parts or none: when one fails, those before it get back what they had. Throws ArgumentError
/// naming the entry; entries of no part are errors, too.
void load_parts(std::span<const StatePart> parts, const StateDict& state);

}  // namespace athanor
