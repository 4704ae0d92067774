#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "nn/module.h"
#include "optim/arena.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/step.h"
#include "trainer/callback.h"
#include "trainer/checkpoint.h"
#include "trainer/config.h"
#include "trainer/ranks.h"
#include "trainer/run_state.h"
#include "trainer/signals.h"

namespace athanor {

/// Trains classifiers: epochs of steps, validation after each, reports through callbacks.
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

  // For callbacks.
  /// Ends training after this step (or epoch); the first reason counts. `why` is a line for the user.
  void stop(StoppedBy reason, std::string why = {});
  const std::string& why_stopped() const { return why_stopped_; }
  const TrainerConfig& config() const { return config_; }
  ParameterArena& arena() const { return *arena_; }
  /// The scalars of the step as far as the host knows them; see StepBuffer::known().
  const StepState& state() const { return step_->known(); }
  const Times& times() const { return at_.times; }
  int rank() const { return ranks_.rank(); }
  int world_size() const { return ranks_.world_size(); }
  /// The epoch's training loss and accuracy so far, on this rank's samples. Waits for the device, uncounted:
  /// call it now and then.
  Metrics running_metrics() const;
  /// The weights are no longer those of the last validation: measure again at the end.
  void weights_changed() { at_.validated = at_.averages_hold = false; }
  /// Until its end(), the model is what validation sees: its running average, where there is one. A call of
  /// all ranks.
  std::optional<EmaSwap> as_validated() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// Where a step's seconds go, at one look at the clock per part: lap() gives what has passed since the last
  /// one to a part.
  class StepClock {
   public:
    void start() { last_ = Clock::now(); }
    double lap(double& part) {
      const Clock::time_point now = Clock::now();
      const double passed = std::chrono::duration<double>(now - last_).count();
      last_ = now;
      part += passed;
      return passed;
    }

   private:
    Clock::time_point last_;
  };

  void set_up(nn::Module& model, const Dataset& train, const Dataset& held_out);
  void check_fits(const Dataset& train, const Dataset& held_out) const;
  void make_loaders(const Dataset& train, const Dataset& held_out);
  std::unique_ptr<Optimizer> make_optimizer() const;
  void train_epochs();
  void train_epoch();
  std::int64_t train_step();
  void accumulate_gradients(std::int64_t samples, bool share = true);
  void next_batch(Batch& batch);
  void backward_pass(const Batch& batch, double weight);
  static void clear_metrics(const Tensor& totals);
  void add_metrics(const Tensor& logits, const Tensor& target, float smoothing, const Tensor& totals) const;
  void update();
  void tell_result(const StepState& state);
  void check_overflows(const StepState& state, std::int64_t patience);
  std::string find_overflow();
  void check_limits();
  void agree(bool out_of_time = false);
  void name_unused();
  int threads() const;
  static void try_threads(int count);
  bool report_epoch(double epoch_s);
  void report_times(EpochReport& report);
  LoaderOptions feeding(const Dataset& data);
  std::string describe_feeding() const;
  void tell(const std::string& note);
  Metrics validate();
  Metrics read_all(const Tensor& totals);
  FitReport finish();
  FitInfo describe() const;
  std::string nothing_to_do(const FitInfo& info) const;
  double seconds_since_start() const;
  std::int64_t steps_per_epoch() const;
  void open_checkpoints(std::optional<CheckpointFolder>& folder);
  std::vector<StatePart> state_parts();
  StateDict settings() const;
  StateDict shared_settings() const;
  StateDict totals_of_all() const;
  void take_totals(const StateDict& state);
  void go_on();
  bool has_diverged() const;
  void save();

  TrainerConfig config_;
  std::vector<std::unique_ptr<Callback>> callbacks_;

  nn::Module* model_ = nullptr;
  std::unique_ptr<ParameterArena> arena_;
  Ranks ranks_;  // after the arena, which its gradients are in
  std::unique_ptr<GradientMeter> meter_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  /// Ends the loaders with fit(), however it ends: their threads read the caller's data sets.
  class Loaders {
   public:
    explicit Loaders(Trainer& of) : of_(of) {}
    ~Loaders() {
      of_.train_.reset();
      of_.held_out_.reset();
    }
    Loaders(const Loaders&) = delete;
    Loaders& operator=(const Loaders&) = delete;

   private:
    Trainer& of_;
  };
  std::unique_ptr<Loader> train_, held_out_;
  bool resident_ = false;  // the training set is in memory
  std::unique_ptr<Preprocess> preprocess_;
  std::unique_ptr<Ema> ema_;
  std::optional<StepBuffer> step_;
  LossScaling scaling_;
  GradientLimits limits_;
  // [3] f64: kernels/metrics.h; of the epoch, of the epoch when the step began, of a validation
  Tensor totals_, totals_before_, val_totals_;
  Normalization pixels_;

  RunPosition at_;
  StepClock clock_;
  Times times_before_;             // of the part of the epoch that this process trains: what was before,
  double part_began_s_ = 0;        // since training began: when it began,
  std::int64_t steps_before_ = 0;  // and at which attempted step
  LoaderStats fed_;                // what the loader did in it
  double part_s_ = 0;              // and its length, once it is over
  Clock::time_point started_;
  std::int64_t syncs_at_start_ = 0;
  bool stopping_ = false;
  StoppedBy reason_ = StoppedBy::epochs;
  std::string why_stopped_;
  const SignalGuard* signals_ = nullptr;
  dist::SyncBatchNorm* norms_ = nullptr;  // while fit() runs, with --sync-bn
  std::vector<char> named_;               // per rank: whether name_unused() has

  bool saves_ = false;                  // some rank does
  CheckpointFolder* folder_ = nullptr;  // while fit() runs, on the rank that saves
  std::vector<double> all_totals_;      // totals_ of each rank, as saved
  std::optional<NewestCheckpoint> resume_from_;
  std::vector<std::string> notes_;
  std::int64_t saved_ = -1;  // attempted steps of the checkpoint of this position; -1: there is none
  std::filesystem::path newest_saved_;
};

}  // namespace athanor
