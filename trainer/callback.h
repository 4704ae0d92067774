#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "kernels/vendor_stats.h"
#include "tensor/base/error.h"
#include "tensor/state_dict.h"
#include "trainer/bottleneck.h"
#include "trainer/config.h"
#include "trainer/metric_sums.h"

namespace athanor {

class Trainer;

/// Why training ended.
enum class StoppedBy : std::uint8_t { epochs, max_steps, early_stop, max_time, signal, diverged };

/// As metrics files write it: "epochs", "max_steps", "signal", ...
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

/// How training ended; `why` is a line for the user.
struct Ended {
  StoppedBy reason = StoppedBy::epochs;
  std::string why = {};
};

/// Training has diverged and cannot continue: run_main() returns kExitDiverged.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// Advice for the user: "lower --lr, or set --clip-norm", and a precision with a wider range if there is one.
std::string_view advice_on_divergence(Precision precision);

/// The outcome of a step.
enum class StepResult : std::uint8_t {
  applied,
  skipped_overflow,  ///< a gradient was not finite
  skipped_outlier,   ///< the gradient norm was an outlier: see OutlierGuard
};

/// Numbers of steps by outcome. A skipped step changes nothing: weights, optimizer state, statistics,
/// averages and schedules follow the applied ones.
struct StepCounts {
  std::int64_t applied = 0, skipped_overflow = 0, skipped_outlier = 0;

  std::int64_t skipped() const { return skipped_overflow + skipped_outlier; }
  std::int64_t attempted() const { return applied + skipped(); }
};

/// A completed step, as reported by the device.
struct StepReport {
  std::int64_t attempted = 0;  ///< index of the step; 1 is the first
  StepResult result = StepResult::applied;
  float grad_norm = 0;      ///< of its unscaled gradients, before clipping
  float learning_rate = 0;  ///< of the first group
  float loss_scale = 1;     ///< of the next step
};

/// A step for loggers, measured on this rank's samples. NaN means not measured.
struct StepLog {
  StepReport report;
  std::int64_t epoch = 0;   ///< 1 is the first
  double images_per_s = 0;  ///< of training alone, since the previous log; all ranks
  double data_wait_s = 0;   ///< per step, waiting for samples, since the previous log
  /// "train_loss", "train_accuracy", and names logged by steps: "train_psnr". Minima and maxima
  /// (MetricReduce) cover the epoch so far. Valid during the call.
  std::span<const NamedValue> values = {};
};

struct Picture;

/// The training that is about to begin.
struct FitInfo {
  const TrainerConfig& config;
  const ImageSpec& spec;
  std::int64_t train_samples = 0, val_samples = 0;
  std::vector<std::string> class_names = {};
  std::vector<Unused> unused = {};         ///< what the data's sources hold besides samples
  std::uint64_t train_id = 0, val_id = 0;  ///< data_id() of the two sets; 0: there is none
  std::int64_t parameters = 0;             ///< trained ones
  std::int64_t frozen_parameters = 0;      ///< not trained
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;  ///< attempted steps, unless training ends early
  int threads = 1;
  int ranks = 1;                            ///< that share a batch
  std::string strategy = "single";          ///< "ddp on 4 ranks (mpirun)"
  std::string data_source = {};             ///< the source of samples: "data in memory"
  std::filesystem::path resumed_from = {};  ///< the checkpoint to resume; empty: a fresh start
  std::int64_t attempted = 0;               ///< steps before this run
  std::vector<std::string> notes = {};      ///< lines for the user: how the run started or resumed
  std::string nothing_to_do = {};           ///< why a resumed run makes no step; empty: it makes some
  bool classifies = true;                   ///< false: a custom task defines the metrics
  bool own_rates = false;                   ///< the task sets learning rates, not TrainerConfig
  bool own_optimizers = false;              ///< the task makes its optimizers, not TrainerConfig
  std::string summary = {};                 ///< with --summary, on rank 0: the table of layers
};

/// The position of training after a step.
struct StepInfo {
  std::int64_t epoch = 0;  ///< 1 is the first
  std::int64_t step = 0;   ///< in this epoch, 1 is the first
  std::int64_t attempted = 0;
  std::int64_t samples = 0;  ///< of this epoch, so far
  double epoch_s = 0;
};

/// An epoch, or its completed part, with its validation. NaN means not measured.
struct EpochReport {
  std::int64_t epoch = 0;  ///< 1 is the first
  bool whole = true;       ///< the epoch is complete
  double train_loss = 0, train_accuracy = 0;
  double val_loss = 0, val_accuracy = 0;
  std::vector<NamedValue> others = {};  ///< names logged by steps: "train_psnr", "val_psnr"
  double images_per_s = 0;              ///< of training alone
  double wall_s = 0;                    ///< since training began
  float learning_rate = 0;              ///< of the last step
  float loss_scale = 1;                 ///< of the next step
  StepCounts steps;                     ///< since training began
  std::uint64_t weights_hash = 0;
  /// Seconds of training by activity, in this process, and the bottleneck. `other_s`: callbacks and
  /// everything outside the step's parts.
  Times times;
  double other_s = 0;
  Bottleneck bottleneck;
  LoaderStats loader;              ///< during training
  std::vector<std::string> notes;  ///< lines for the user

  bool finite = true;  ///< all values of validation are finite

  /// The value of "train_loss", "val_accuracy" or another name; NaN if not measured.
  double value_of(std::string_view name) const;
  /// The first value of validation that is not finite.
  std::optional<NamedValue> not_finite() const;
};

/// The whole training. NaN means not measured.
struct FitReport {
  double test_loss = 0, test_accuracy = 0;
  std::vector<NamedValue> others = {};  ///< names logged by validation steps: "test_psnr"
  double wall_s = 0;
  double images_per_s = 0;
  StepCounts steps;
  std::int64_t epochs = 0;
  std::int64_t host_syncs = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t graphs = 0, graph_launches = 0;  ///< captured passes of steps and validations (--graph)
  VendorStats vendor;  ///< cuDNN and cuBLASLt on this rank; `refused` and `fallbacks` of all ranks
  std::uint64_t weights_hash = 0;
  StoppedBy stopped_by = StoppedBy::epochs;
  int signal = 0;
  int world_size = 1;
  Strategy strategy = Strategy::single;
  std::filesystem::path checkpoint;  ///< the newest checkpoint of this run; empty: none
  /// In the run's folder: the reported weights, and those of the last step if they differ; empty: none.
  std::filesystem::path model, last_model;
  std::string weights;                     ///< which weights: "best val_loss", "running average", "last step"
  Metrics last = Metrics::not_measured();  ///< of the weights in last_model
};

/// Observes a Trainer, and may stop it. Called on the training thread, in the order in which callbacks were
/// added.
class Callback {
 public:
  virtual ~Callback() = default;
  /// On rank 0, if the run has a folder: before on_fit_begin(), and whenever the folder was made again
  /// because another program had removed it.
  virtual void on_run_dir(Trainer&, const std::filesystem::path&) {}
  virtual void on_fit_begin(Trainer&, const FitInfo&) {}
  /// Before and after every step. With several ranks, the last step may begin without being made. Reading a
  /// device value here makes training wait for it.
  virtual void on_step_begin(Trainer&, const StepInfo&) {}
  virtual void on_step_end(Trainer&, const StepInfo&) {}
  /// Once for every step, in order, when its outcome is known: on the CPU before on_step_end(), on a GPU some
  /// steps later, because nothing waits for it. All outcomes are reported by on_epoch_end().
  virtual void on_step_result(Trainer&, const StepReport&) {}
  /// Every --log-every attempted steps, directly after on_step_result(), with the step's measurements.
  virtual void on_step_log(Trainer&, const StepLog&) {}
  /// After each validation, within an epoch (--val-every) or at its end; without validation data, at the end
  /// of each epoch. The report covers the epoch so far. Called before on_epoch_end().
  virtual void on_validated(Trainer&, const EpochReport&) {}
  virtual void on_epoch_end(Trainer&, const EpochReport&) {}
  /// On rank 0, if the run has a folder: a picture from a validation (samples.h).
  virtual void on_picture(Trainer&, const Picture&) {}
  /// Before each validation, and after it unless a signal ended it.
  virtual void on_validation_begin(Trainer&) {}
  virtual void on_validation_end(Trainer&, const Metrics&) {}
  /// After a checkpoint was saved, on rank 0; other ranks get no path. With --async-checkpoints, called when
  /// the next one is saved, or at the end.
  virtual void on_checkpoint(Trainer&, const std::filesystem::path&) {}
  /// The exception that ends training, before it propagates. Exceptions thrown here are dropped.
  virtual void on_exception(Trainer&, const std::exception&) {}
  /// An urgent note for the user: a read that does not end.
  virtual void on_note(Trainer&, const std::string&) {}
  /// The answer of a run to a Question: `text` makes lines of at most the given number of columns. It is the
  /// last call.
  using AnswerText = std::function<std::string(int columns)>;
  virtual void on_answer(Trainer&, const AnswerText& /*text*/) {}
  /// After the last step, before the final evaluation: weights may still be replaced.
  virtual void on_train_end(Trainer&) {}
  virtual void on_fit_end(Trainer&, const FitReport&) {}

  /// Whether on_step_end() or on_step_result() may read the model's weights. If no callback of any rank does,
  /// ZeRO-1 sends weights during the next step; in all other calls they are complete anyway.
  virtual bool reads_weights() const { return true; }

  /// The name of its state in checkpoints, of letters, digits and '_'; empty: no state.
  virtual std::string state_name() const { return {}; }
  /// Its state between two steps.
  virtual StateDict state_dict(const Trainer&) const { return {}; }
  /// Restores a state_dict() in a resumed run, after on_fit_begin(). Must throw ArgumentError, before
  /// changing anything, on a missing or extra entry.
  virtual void load_state_dict(const Trainer&, const StateDict&) {}
};

/// The callbacks of a run, in the order of their calls.
using Callbacks = std::vector<std::unique_ptr<Callback>>;

}  // namespace athanor
