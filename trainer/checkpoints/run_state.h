#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/step_state.h"
#include "tensor/state_dict.h"
#include "trainer/bottleneck.h"
#include "trainer/callback.h"
#include "trainer/flags/settings.h"
#include "trainer/metric_sums.h"

// The content of a run's checkpoint. Every stateful part of the run writes one dictionary and reads one; they
// are joined under prefixes:
//
//     settings.     checked in a resumed run
//     run.          position of the run: RunPosition
//     step.         StepState
//     callbacks.X.  of each stateful callback, by its name
//     metrics.      sums of the epoch so far, a row for each rank
//     best.         the checkpoints kept for their values
//     optimizer.  ema.  model.     by parameter name, whole and unpadded
//
// With several optimizers, each has its name: optimizer.NAME.

namespace athanor {

/// The position of a run between two steps, besides its tensors and the step's scalars.
struct RunPosition {
  std::int64_t epoch = 0;            ///< 0 is the first
  std::int64_t epoch_samples = 0;    ///< delivered in this epoch so far
  std::int64_t epoch_steps = 0;      ///< of this epoch; nonzero at its end until reported
  std::int64_t attempted = 0;        ///< steps
  std::int64_t trained_samples = 0;  ///< in earlier epochs
  double train_s = 0;                ///< in earlier epochs
  double epoch_began_s = 0;          ///< in seconds since training began
  double rate_scale = 1;             ///< of all learning rates, by callbacks
  int threads = 0;                   ///< chosen by --threads auto; 0: not used
  std::string conv_choices;          ///< of convolutions, as conv_choices() returned them; empty: rules
  double elapsed_s = 0;              ///< since training began, without time between processes
  Times times;
  Metrics validation;         ///< the latest one
  bool validated = false;     ///< the weights are unchanged since that validation
  bool averages_hold = true;  ///< no write has made the running average of the weights invalid
  /// Ended by a callback: only the work after the last step remains.
  std::optional<Ended> ended;
};

/// As named values, for a checkpoint.
StateDict state_of(const RunPosition& position);
/// Throws ArgumentError on a missing or extra entry, or a value out of range.
RunPosition position_from(const StateDict& state);

/// The step's scalars as named values, for a checkpoint, and back.
StateDict state_of(const StepState& step);
StepState step_from(const StateDict& state);

/// A part of a run: `load` restores the result of `save`, or throws before it changes anything.
struct StatePart {
  std::string prefix;  ///< "optimizer."
  std::function<StateDict()> save;
  std::function<void(const StateDict&)> load;
};

/// All parts in one dictionary.
StateDict save_parts(std::span<const StatePart> parts);
/// Loads all parts or none: if one fails, earlier ones are restored. Throws ArgumentError naming the entry,
/// also for entries of no part.
void load_parts(std::span<const StatePart> parts, const StateDict& state);

}  // namespace athanor
