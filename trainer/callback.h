#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "tensor/error.h"
#include "tensor/state_dict.h"
#include "trainer/bottleneck.h"
#include "trainer/config.h"
#include "trainer/metric_sums.h"

namespace athanor {

class Trainer;

/// Why training ended.
enum class StoppedBy : std::uint8_t { epochs, max_steps, early_stop, max_time, signal, diverged };

constexpr std::string_view name_of(StoppedBy reason) {
  switch (reason) {
    case StoppedBy::epochs: return "epochs";
    case StoppedBy::max_steps: return "max_steps";
    case StoppedBy::early_stop: return "early_stop";
    case StoppedBy::max_time: return "max_time";
    case StoppedBy::signal: return "signal";
    case StoppedBy::diverged: return "diverged";
  }
  return "?";
}

/// How it ended; `why` is a line for the user.
struct Ended {
  StoppedBy reason = StoppedBy::epochs;
  std::string why = {};
};

/// Training has diverged, and cannot go on: run_main() ends with kExitDiverged.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// What a user may try: "lower --lr, or set --clip-norm", and a precision with a wider range where there is
/// one.
std::string_view advice_on_divergence(Precision precision);

/// What became of a step.
enum class StepResult : std::uint8_t {
  applied,
  skipped_overflow,  ///< a gradient was not finite
  skipped_outlier,   ///< the gradient norm was far off: see OutlierGuard
};

/// How many steps ended how. A skipped step changes nothing: weights, optimizer state, statistics, averages
/// and schedules follow the applied ones.
struct StepCounts {
  std::int64_t applied = 0, skipped_overflow = 0, skipped_outlier = 0;

  std::int64_t skipped() const { return skipped_overflow + skipped_outlier; }
  std::int64_t attempted() const { return applied + skipped(); }
};

/// A step that is over, as the device tells of it.
struct StepReport {
  std::int64_t attempted = 0;  ///< which step it was; 1 is the first
  StepResult result = StepResult::applied;
  float grad_norm = 0;      ///< of its unscaled gradients, before clipping
  float learning_rate = 0;  ///< of the first group
  float loss_scale = 1;     ///< of the step that follows
};

/// What is about to be trained, and on what.
struct FitInfo {
  const TrainerConfig& config;
  const ImageSpec& spec;
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t parameters = 0;         ///< that are trained
  std::int64_t frozen_parameters = 0;  ///< that are not
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;  ///< that will be attempted, if nothing ends them early
  int threads = 1;
  std::string strategy = "single";          ///< "ddp on 4 ranks (mpirun)"
  std::string feeding = {};                 ///< how samples get to the model: "data in memory"
  std::filesystem::path resumed_from = {};  ///< the checkpoint this run goes on from; empty: it begins
  std::int64_t attempted = 0;               ///< steps that lie behind it
  std::vector<std::string> notes = {};      ///< lines for the user: how it came to begin or go on
  std::string nothing_to_do = {};           ///< why a run that goes on makes no step; empty: it makes some
  bool classifies = true;                   ///< else a task of the program's own says what is measured
  bool own_rates = false;                   ///< learning rates are the task's, not TrainerConfig's
};

/// Where training stands after a step.
struct StepInfo {
  std::int64_t epoch = 0;  ///< 1 is the first
  std::int64_t step = 0;   ///< in this epoch, 1 is the first
  std::int64_t attempted = 0;
  std::int64_t samples = 0;  ///< of this epoch, so far
  double epoch_s = 0;
};

/// An epoch and the validation after it, or what of it is over. What was not measured is NaN.
struct EpochReport {
  std::int64_t epoch = 0;  ///< 1 is the first
  bool whole = true;       ///< it is over
  double train_loss = 0, train_accuracy = 0;
  double val_loss = 0, val_accuracy = 0;
  std::vector<NamedValue> others = {};  ///< what steps have logged besides: "train_psnr", "val_psnr"
  double images_per_s = 0;              ///< of training alone
  double wall_s = 0;                    ///< since training began
  float learning_rate = 0;              ///< of the last step
  float loss_scale = 1;                 ///< of the step that follows
  StepCounts steps;                     ///< since training began
  std::uint64_t weights_hash = 0;
  /// Where the seconds of its training went, in this process, and what they say. `other_s`: callbacks and
  /// what else is none of the step's parts.
  Times times;
  double other_s = 0;
  Bottleneck bottleneck;
  LoaderStats loader;              ///< of its training
  std::vector<std::string> notes;  ///< lines for the user

  bool finite = true;  ///< all that validation has measured

  /// "train_loss", "val_accuracy" or one of the others; NaN where it was not measured.
  double value_of(std::string_view name) const;
  /// What validation has measured and is not finite: the first such.
  std::optional<NamedValue> not_finite() const;
};

/// The whole training. What was not measured is NaN.
struct FitReport {
  double test_loss = 0, test_accuracy = 0;
  std::vector<NamedValue> others = {};  ///< what validation steps have logged besides: "test_psnr"
  double wall_s = 0;
  double images_per_s = 0;
  StepCounts steps;
  std::int64_t epochs = 0;
  std::int64_t host_syncs = 0;
  std::int64_t peak_bytes = 0;
  std::uint64_t weights_hash = 0;
  StoppedBy stopped_by = StoppedBy::epochs;
  int signal = 0;
  int world_size = 1;
  Strategy strategy = Strategy::single;
  std::filesystem::path checkpoint;  ///< the newest one this run has saved; empty: none
  /// In the run's folder: the weights reported, and those of the last step where they are others; empty:
  /// none.
  std::filesystem::path model, last_model;
  std::string weights;  ///< which they are: "best val_loss", "running average", "last step"
  Metrics last = Metrics::not_measured();  ///< of the weights in last_model
};

/// Looks on while a Trainer works, and may tell it to stop. Called on the training thread, in the order the
/// callbacks were added.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_fit_begin(Trainer&, const FitInfo&) {}
  /// Before every step, and after it; of several ranks, one that nobody makes may have begun at the end.
  /// Reading a value of the device here makes training wait for it.
  virtual void on_step_begin(Trainer&, const StepInfo&) {}
  virtual void on_step_end(Trainer&, const StepInfo&) {}
  /// Once for every step, in order, when its outcome is known: on the CPU before on_step_end(), on a GPU some
  /// steps later, because nothing waits for it. All have been told of by on_epoch_end().
  virtual void on_step_result(Trainer&, const StepReport&) {}
  /// After each validation, in the middle of an epoch (--val-every) or at its end; where nothing is held out,
  /// at the end of each epoch. Of the epoch, what has been trained so far counts. Before on_epoch_end().
  virtual void on_validated(Trainer&, const EpochReport&) {}
  virtual void on_epoch_end(Trainer&, const EpochReport&) {}
  /// Before each validation, and after it, where no signal has ended it.
  virtual void on_validation_begin(Trainer&) {}
  virtual void on_validation_end(Trainer&, const Metrics&) {}
  /// After a checkpoint was saved, on rank 0: other ranks get no path. With --async-checkpoints that is known
  /// when the next one is saved, or at the end.
  virtual void on_checkpoint(Trainer&, const std::filesystem::path&) {}
  /// What training ends with, before it goes on its way. What this throws is dropped.
  virtual void on_exception(Trainer&, const std::exception&) {}
  /// Something a person should know at once: a read that does not end, a sample that was replaced.
  virtual void on_note(Trainer&, const std::string&) {}
  /// What a run says that is asked a Question: `text` makes lines of at most so many columns. Nothing
  /// follows.
  using AnswerText = std::function<std::string(int columns)>;
  virtual void on_answer(Trainer&, const AnswerText& /*text*/) {}
  /// After the last step, before the final evaluation: weights may still be exchanged.
  virtual void on_train_end(Trainer&) {}
  virtual void on_fit_end(Trainer&, const FitReport&) {}

  /// Whether on_step_end() or on_step_result() may read the model's weights. Where no callback of any rank
  /// does, ZeRO-1 sends them while the next step computes; they are whole everywhere else in any case.
  virtual bool reads_weights() const { return true; }

  /// The name its state has in checkpoints, of letters, digits and '_'; empty where it has none.
  virtual std::string state_name() const { return {}; }
  /// What it remembers from step to step. Asked between two steps.
  virtual StateDict state_dict(const Trainer&) const { return {}; }
  /// Takes over what state_dict() gave in the run that goes on; called after on_fit_begin(). Must throw
  /// ArgumentError, before it changes anything, on a missing or extra entry.
  virtual void load_state_dict(const Trainer&, const StateDict&) {}
};

using Callbacks = std::vector<std::unique_ptr<Callback>>;

}  // namespace athanor
