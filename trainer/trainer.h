#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "nn/module.h"
#include "optim/arena.h"
#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/finders/lr_finder.h"
#include "trainer/metric_sums.h"
#include "trainer/task.h"
#include "trainer/validated_model.h"

namespace athanor {

class ParallelStrategy;
class Profiler;
class RunDir;
class TrainingLoop;
struct ModelMemory;
namespace report {
class ReportPage;
}

/// Trains a classifier, or any Task: epochs of steps, validation after each, reports through callbacks.
///
///     Trainer trainer(config);
///     const FitReport report = trainer.fit(model, train, test);
///
/// With --checkpoint-dir it saves, between two steps, all state of the run. --resume then continues as if it
/// had never stopped: same settings, device and threads give the same bits.
///
/// With several ranks, each trains on its part of every global batch, and all have the same weights, metrics
/// and reasons to stop after each step. Strategy and number of ranks change results only by rounding.
/// Callbacks run on all ranks, with the same metrics. Only rank 0 writes metrics and checkpoints, which any
/// number of ranks can resume. The batch size is that of the global batch.
///
/// A step is `accumulate` backward passes and one update. Within a step nothing waits for the device: loss
/// and accuracy are summed there, and read between steps. A step with a non-finite gradient changes only the
/// loss scale; schedules, averages and reports ignore it. Repeated overflows at the lowest scale are an Error
/// that names the parameter and the op.
class Trainer {
 public:
  /// Checks the config and adds the callbacks it requests (JSON lines, early stopping). Throws ArgumentError,
  /// and IoError if metrics cannot be written. `transport`: this rank's connection to the other ranks, which
  /// must outlive the trainer; null: a single rank.
  explicit Trainer(TrainerConfig config, dist::Transport* transport = nullptr);
  ~Trainer();

  /// Adds a callback, called after those added before.
  void add(std::unique_ptr<Callback> callback);

  /// Trains `model` in place, by the task of the config; its parameters move into an arena of this trainer.
  /// `model` must have values and map [N, H, W, C] to logits [N, classes] (with --task regression to [N,
  /// values]). `held_out` is for validation after each epoch and for the final
  /// accuracy. Pixels are normalised by the training set's mean and deviation. SIGINT and SIGTERM end it
  /// after the current step. Throws ArgumentError if model and data do not match, and what data, model and
  /// callbacks throw.
  FitReport fit(nn::Module& model, const Dataset& train, const Dataset& held_out);
  /// The same for a custom task: trains its networks in place, by its steps.
  FitReport fit(Task& task, const Dataset& train, const Dataset& held_out);
  /// The same without validation: reports have only training metrics.
  FitReport fit(Task& task, const Dataset& train);

  /// Names the following fits as a phase of a run with several, such as a teacher and then its student:
  ///
  ///     trainer.phase("teacher").fit(teach, train, test);
  ///     return trainer.phase("student").fit(distill, train, test);
  ///
  /// Each phase has its own folder in --checkpoint-dir (and in samples/ of --run-dir), and its name in
  /// progress and metrics. With --resume auto, a completed phase returns from its last checkpoint, with its
  /// report, and an interrupted one continues. If a signal or divergence ended a phase, later fits return
  /// that report and do nothing. `change` sets what differs in the phase: epochs, rates, schedule, optimizer,
  /// recipe; not ranks, device, early stopping or reports. Limits count per phase. All ranks must make the
  /// same calls. Throws ArgumentError on a name not of letters, digits and '_' or already used, and with
  /// --resume FILE, which is of one phase.
  Trainer& phase(const std::string& name, const std::function<void(TrainerConfig&)>& change = {});

  // For callbacks, while fit() runs.
  /// Ends training after this step (or epoch); the first reason counts. `why` is a line for the user. Several
  /// ranks all end after the same step, once they have agreed.
  void stop(StoppedBy reason, std::string why = {});
  /// The newest state of the step that the host knows; see StepBuffer::known().
  const StepState& state() const;
  const Times& times() const;
  /// The epoch's metrics so far, including loss and accuracy, over this rank's samples, without confusion
  /// matrices. Waits for the device, uncounted: call it rarely.
  Metrics running_metrics() const;
  /// Multiplies all learning rates from the next step on, cumulatively, also in a resumed run: for example
  /// when a metric no longer improves. All ranks must call it alike. Throws ArgumentError on a factor that is
  /// not positive.
  void scale_learning_rates(double factor);
  /// Measures the loss over learning rates that rise from step to step, as a Question asks. Between two
  /// steps, a call of all ranks. Restores weights, optimizer, counters, mode, and the position in the data.
  /// Throws ArgumentError on an invalid range, and if --lr does not set the task's rates.
  LrCurve find_lr(const LrRange& range = {});
  /// All ranks must call it after writing masters. It distributes the weights, which are measured again at
  /// the end because they differ from those of the last validation.
  void weights_changed();
  /// Until its end(), the model has the weights used for validation: its running average, if any. A call of
  /// all ranks.
  ValidatedModel as_validated() const;

  /// All networks as one module.
  nn::Module& networks() const;

  // After fit().
  /// The report of --profile as text; empty without it.
  std::string profile() const;
  std::string why_stopped() const;
  const TrainerConfig& config() const { return config_; }
  /// The networks' parameters; with several optimizers, those of the first.
  ParameterArena& arena() const { return *arenas().at(0); }
  /// Those of all optimizers.
  const std::vector<std::unique_ptr<ParameterArena>>& arenas() const;
  /// Masters and buffers of everything trained, under their names: views of live memory.
  StateDict weights() const;
  /// Loads the result of weights(); call weights_changed() afterwards.
  void load_weights(const StateDict& weights);
  int rank() const;
  int world_size() const;

 private:
  FitReport fit(Task& task, const Dataset& train, const Dataset* held_out);
  FitReport find_batch_size(Task& task, const Dataset& train);
  TrainingLoop& loop() const;
  void add_page();
  void set_plateau();

  TrainerConfig config_;
  TrainerConfig whole_;                    // config_ without a phase
  std::vector<std::string> phases_;        // so far
  std::optional<FitReport> ended_phases_;  // by a signal or divergence
  Callbacks callbacks_;
  std::unique_ptr<ModelMemory> memory_;
  std::unique_ptr<ParallelStrategy> strategy_;
  std::unique_ptr<RunDir> dir_;
  TrainingLoop* loop_ = nullptr;  // while fit() runs
  std::string why_stopped_;
  // Some of the callbacks.
  Profiler* profiler_ = nullptr;
  const Callback* plateau_ = nullptr;
  report::ReportPage* page_ = nullptr;
};

}  // namespace athanor
