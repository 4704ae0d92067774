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
#include "trainer/optimized_networks.h"
#include "trainer/parallel_strategy.h"
#include "trainer/task.h"
#include "trainer/validation.h"

namespace athanor {

class Profiler;
class Run;
struct Setting;
namespace report {
class ReportPage;
}

/// Trains a model as a classifier, or whatever a Task says: epochs of steps, validation after each, reports
/// through callbacks.
///
///     Trainer trainer(config);
///     const FitReport report = trainer.fit(model, train, test);
///
/// With --checkpoint-dir it saves all that determines the rest of the run, between two steps, and with
/// --resume goes on as if it had never stopped: same settings, same device, same threads, same bits.
///
/// On several ranks, each trains on its part of every batch, and all have the same weights, metrics and
/// reasons to stop after each step; strategy and number of ranks change results by rounding alone. Callbacks
/// run on all of them, with the same metrics; rank 0 alone writes metrics and checkpoints, which any number
/// of ranks goes on from. The batch size is that of all ranks together.
///
/// A step is `accumulate` backward passes and one update. Within a step nothing waits for the device: loss
/// and accuracy are summed there, and read between steps. A step with a non-finite gradient changes nothing
/// but the loss scale: schedules, averages and reports do not see it. Where the scale can go no lower and
/// steps go on overflowing, that is an Error which names the parameter and the op.
class Trainer {
 public:
  /// Checks the config; adds the callbacks it asks for (JSON lines, early stopping). Throws ArgumentError,
  /// and IoError where the metrics cannot be written. `transport`: this rank's end of the network between
  /// several, which must outlive the trainer; null: there is one rank.
  explicit Trainer(TrainerConfig config, dist::Transport* transport = nullptr);
  ~Trainer();

  /// Called from now on, after those added before.
  void add(std::unique_ptr<Callback> callback);

  /// Trains `model` in place, its parameters moved into an arena of this trainer's.
  /// `model` must have values and take [N, H, W, C] to logits [N, classes]. `held_out` is what each epoch is
  /// validated on, and the final accuracy measured. Pixels are normalised by the training set's mean and
  /// deviation. SIGINT and SIGTERM end it after the step under way. Throws ArgumentError where model and data
  /// do not fit, and whatever data, model and callbacks throw.
  FitReport fit(nn::Module& model, const Dataset& train, const Dataset& held_out);
  /// The same for a task of the caller's own: its networks, in place, by its steps.
  FitReport fit(Task& task, const Dataset& train, const Dataset& held_out);
  /// The same without validation: reports know training metrics alone.
  FitReport fit(Task& task, const Dataset& train);

  /// The fits that follow are a phase of a run that has several, such as a teacher and then its student:
  ///
  ///     trainer.phase("teacher").fit(teach, train, test);
  ///     return trainer.phase("student").fit(distill, train, test);
  ///
  /// Each has a folder of its own in --checkpoint-dir (and in samples/ of --run-dir), and is named in
  /// progress and metrics. So with --resume auto, a phase that is finished comes back from its last
  /// checkpoint, with its report, and the one that was killed goes on. Where a signal or divergence has ended
  /// a phase, fits of those behind it return that report and do nothing. `change` sets what the phase has
  /// otherwise: epochs, rates, schedule, optimizer, recipe; not ranks, device, early stopping or reports.
  /// Limits count anew in each. Call it on all ranks alike. Throws ArgumentError on a name that is not of
  /// letters, digits and '_' or was there before, and with --resume FILE, which is of one phase.
  Trainer& phase(const std::string& name, const std::function<void(TrainerConfig&)>& change = {});

  // For callbacks, while fit() runs.
  /// Ends training after this step (or epoch); the first reason counts. `why` is a line for the user. Where
  /// there are several ranks, all end when they have heard of it, after the same step.
  void stop(StoppedBy reason, std::string why = {});
  /// The scalars of the step as far as the host knows them; see StepBuffer::known().
  const StepState& state() const;
  const Times& times() const;
  /// What the epoch has logged so far, loss and accuracy among it, on this rank's samples, without figures of
  /// confusion matrices. Waits for the device, uncounted:
  /// call it now and then.
  Metrics running_metrics() const;
  /// Multiplies all learning rates from the next step on, once more each time, and in the run that goes on
  /// from a checkpoint, too: when a metric no longer improves, say. On all ranks alike. Throws ArgumentError
  /// on a factor that is not above 0.
  void scale_learning_rates(double factor);
  /// The loss over learning rates that rise from step to step, as a Question asks; between two steps, a call
  /// of all ranks. What it trains is put back: weights, optimizer, counters, mode, and the place in the data.
  /// Throws ArgumentError on a range that is none, and where --lr is not what sets the task's rates.
  LrCurve find_lr(const LrRange& range = {});
  /// To be called, by all ranks, after masters were written: all ranks get the weights, which are no longer
  /// those of the last validation: they are measured again at the end.
  void weights_changed();
  /// Until its end(), the model is what validation sees: its running average, where there is one. A call of
  /// all ranks.
  ValidatedModel as_validated() const;

  /// All networks, as one.
  nn::Module& networks() const;

  // And afterwards.
  /// What --profile has found, as text; empty without it.
  std::string profile() const;
  std::string why_stopped() const;
  const TrainerConfig& config() const { return config_; }
  /// The networks' parameters; of several optimizers, those of the first.
  ParameterArena& arena() const { return *memory_.arenas.at(0); }
  /// Those of all optimizers.
  const std::vector<std::unique_ptr<ParameterArena>>& arenas() const { return memory_.arenas; }
  /// Masters and buffers of all that is trained, under their names: views of live memory.
  StateDict weights() const;
  /// Takes over what weights() gave; weights_changed() is to follow.
  void load_weights(const StateDict& weights);
  int rank() const { return strategy_->rank(); }
  int world_size() const { return strategy_->world_size(); }

 private:
  TrainerConfig config_;
  TrainerConfig whole_;                    // config_ without a phase
  std::vector<std::string> phases_;        // so far
  std::optional<FitReport> ended_phases_;  // by a signal, or as the run diverged
  Callbacks callbacks_;
  ModelMemory memory_;
  std::unique_ptr<ParallelStrategy> strategy_;
  friend class Run;
  FitReport fit(Task& task, const Dataset& train, const Dataset* held_out);
  void choose_run_dir(const std::vector<Setting>& settings);
  std::filesystem::path unfinished_run(const std::vector<Setting>& settings) const;
  Run& run() const;
  FitReport find_batch_size(Task& task, const Dataset& train);
  void begin_record();
  void tell_callbacks(const std::exception& error);
  Profiler* profiler_ = nullptr;  // one of the callbacks
  void add_page();
  void set_plateau();
  const Callback* plateau_ = nullptr;   // one of the callbacks
  Run* run_ = nullptr;                  // while fit() runs
  bool begun_ = false;                  // it has found nothing against it
  report::ReportPage* page_ = nullptr;  // one of the callbacks
  std::string why_stopped_;
};

}  // namespace athanor
