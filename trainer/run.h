#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/grad_mode.h"
#include "dist/sync_batch_norm.h"
#include "kernels/vendor_stats.h"
#include "optim/step.h"
#include "trainer/callback.h"
#include "trainer/checkpoints/final_weights.h"
#include "trainer/checkpoints/run_checkpoints.h"
#include "trainer/data_pipeline.h"
#include "trainer/finders/lr_finder.h"
#include "trainer/limits.h"
#include "trainer/loggers/step_log.h"
#include "trainer/metric_sums.h"
#include "trainer/optimized_networks.h"
#include "trainer/task.h"
#include "trainer/validation.h"

namespace athanor {

/// One training: its parts, and (in trainer/loop.cpp) everything done with them. Trainer::fit() creates it
/// and keeps it while it runs.
class Run : private Minimizer {
 public:
  /// `memory` receives the networks' parameters; callbacks receive `trainer`.
  Run(Trainer& trainer, const TrainerConfig& config, const Callbacks& callbacks, ParallelStrategy& strategy,
      ModelMemory& memory, Task& task, const Dataset& train, const Dataset* held_out);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  FitReport train();
  /// Answers a question instead of training: finders.cpp.
  FitReport answer();
  /// Seconds of each of up to `steps` steps after `warm` ones. Stops after three once they take `at_most_s`
  /// in total, and at once on a signal. The run is over afterwards.
  std::vector<double> time_first_steps(int warm, int steps, double at_most_s);

  StepBuffer& step() { return step_; }

  // For callbacks, through the Trainer.
  Limits& limits() { return limits_; }
  const StepState& known() const { return step_.known(); }
  const Times& times() const { return times_.total(); }
  Metrics running_metrics() const;
  void scale_learning_rates(double factor);
  void weights_changed();
  LrCurve find_lr(const LrRange& range);
  nn::Module& networks() { return task_.networks(); }
  ValidatedModel as_validated() { return {averages(), strategy_}; }
  /// "; the last checkpoint is DIR/step_10.safetensors", to continue a message; empty: there is none.
  std::string last_checkpoint() const;

 private:
  void begin_epoch();
  bool train_step();
  void run_passes(std::int64_t samples, bool updates = true);
  void begin_passes(std::int64_t samples, bool updates);
  BatchPosition place_of_pass(std::int64_t done, bool updates) const;
  void run_work(const Batch& batch);
  void run_pass(const Batch& batch);
  void run_first_pass(const Batch& batch);
  std::string batch_for_norms() const;
  std::int64_t samples_that_fit(const Batch& batch);
  void add_gradients(OptimizedNetworks& networks, const Tensor& loss);
  void update(OptimizedNetworks& networks);
  void minimize(std::string_view optimizer, const Tensor& loss) override;
  bool drop_step();
  void settle_metrics(std::int64_t samples);
  void end_epoch();

  StepLogs::Place place_of_step(std::int64_t samples) const;
  std::vector<OptimizerSpec> specs();
  std::vector<Setting> settings_over(std::int64_t schedule_steps) const;
  std::vector<Setting> settle(std::vector<Setting> settings);
  std::vector<Setting> plan(std::int64_t schedule_steps);
  void hold_rates_after(std::int64_t steps);
  std::vector<std::unique_ptr<OptimizedNetworks>> make_networks(ModelMemory& memory);
  OptimizedNetworks& networks_called(std::string_view optimizer);
  /// Whether steps return their loss and the Trainer updates: with a single optimizer.
  bool returns_loss() const { return networks_.size() == 1; }
  const dist::PassNetwork* gathering() const { return task_.gathers() ? &*joined_ : nullptr; }
  static void check_loss(std::string_view whose, const Tensor& loss);
  void check_result(const Tensor& returned) const;
  void check_leaves(const Tensor& loss) const;
  std::vector<Schedule> schedules() const;
  std::string optimizer_kinds() const;
  void begin();
  void resume();
  void save();
  bool save_is_due() const;
  void tell_of_checkpoint();
  void keep_folders();
  void check_overflows(const StepState& known, std::int64_t patience);
  void repeat_step();
  void report_unused_parameters();
  void try_out(const std::function<void()>& body);
  bool try_step();
  std::vector<double> time_steps(int warm, int steps, double at_most_s);
  void choose_threads();
  void choose_convs();
  int faster_threads(int all);
  void validate(std::int64_t epochs);
  void try_validation();
  bool validate_within_epoch();
  bool validates_after_epoch() const;
  void report_validation(const EpochReport& report);
  std::int64_t overflow_patience() const;
  std::optional<SampleFolder> sample_folder() const;
  bool report_epoch(EpochReport report, double epoch_s);
  VendorStats vendor_stats_of_run() const;
  FitReport finish();
  Metrics keep_last();
  void save_product(FitReport& report);
  std::int64_t total_steps() const;
  FitInfo data_and_steps() const;
  FitInfo describe() const;
  std::string summary();
  std::string nothing_to_do(const FitInfo& info) const;
  std::string left_out() const;
  std::string duplicates();
  StateDict shared_settings() const;
  std::uint64_t weights_hash();
  std::vector<StatePart> state_parts();
  StatePart weights_part();
  ModelInfo describe_model(std::uint64_t hash);
  void describe_checkpoints();
  template <class Of> StatePart part_of_networks(const char* prefix, const Of& of, FrozenWeights* frozen);
  std::vector<Ema*> averages();
  template <class F> void notify(const F& f) const {
    if (trying_) return;
    for (const auto& callback : callbacks_) f(*callback);
  }

  struct Detach {
    void operator()(ParallelStrategy* strategy) const { strategy->detach(); }
  };

  Trainer& trainer_;
  const TrainerConfig& config_;
  const Callbacks& callbacks_;
  ParallelStrategy& strategy_;
  const VendorStats& vendor_;
  const VendorStats vendor_before_run_;
  VendorStats vendor_before_;  // before this epoch
  RunClock clock_;
  Limits limits_;
  RunPosition position_;
  PhaseTimes times_;
  std::unique_ptr<ParallelStrategy, Detach> attached_;  // detaches, even if a later part throws
  DataPipeline pipeline_;
  Task& task_;
  const Dataset& train_;
  const Dataset* held_out_;
  std::vector<OptimizerSpec> specs_;
  std::vector<std::unique_ptr<OptimizedNetworks>> networks_;
  std::vector<const ParameterArena*> arenas_;  // theirs
  FrozenWeights& frozen_;
  std::vector<Setting> settings_;
  LossScaling scaling_;
  GradientLimits gradient_limits_;
  StepBuffer step_;
  MetricSums metrics_;
  StepLogs step_logs_;
  RunCheckpoints checkpoints_;
  FinalWeights final_weights_;
  std::optional<SampleFolder> samples_;
  StepGraphs graphs_;
  Validation validation_;
  std::optional<dist::PassNetwork> joined_;  // for passes in which ranks wait for each other
  std::unique_ptr<dist::SyncBatchNorm> norms_;
  bool overlaps_weights_ = false;
  std::optional<NoFusion> no_fusion_;
  bool trying_ = false;  // trial steps, hidden from callbacks
  std::string threads_note_, convs_note_;
  std::optional<VendorNotes> vendor_notes_;

  // Of the current step.
  struct Now {
    std::int64_t samples = 0;      // of all passes and ranks
    std::int64_t draws = 0;        // of random numbers, by the task
    std::uint64_t first_node = 0;  // number of the pass's first node
    BatchPosition pass = {};       // the current pass
    bool joins = false;            // ranks without samples take part
    bool updates = false;          // it is the last one
    int made = 0;                  // number of updates
    bool dropped = false;          // its updates are dropped
  } now_;

  // Of this process's part of the epoch.
  Times times_before_;
  double part_began_s_ = 0;
  std::int64_t steps_before_ = 0;
  std::int64_t syncs_before_ = 0;
  std::vector<char> named_;  // per rank: report_unused_parameters() has reported it
};

}  // namespace athanor
