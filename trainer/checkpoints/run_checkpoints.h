#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/step_buffer.h"
#include "trainer/checkpoints/background_save.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/run_state.h"
#include "trainer/config.h"
#include "trainer/limits.h"
#include "trainer/metric_sums.h"
#include "trainer/parallel_strategy.h"
#include "trainer/phase_times.h"

namespace athanor {

/// The checkpoints of one run: when and by which rank they are saved, which are kept, and which one to
/// resume. All calls are calls of all ranks.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainerConfig& config, ParallelStrategy& strategy, const StepBuffer& step,
                 MetricSums& metrics);

  /// Opens the folder, and finds the checkpoint for --resume: nullopt for a fresh start, else its position.
  /// `settings` returns this run's settings, given the number of steps for which its learning rates are made:
  /// the resumed run's number, or `total_steps` without one. A run that had ended has not, if its settings
  /// ask for more of it. Throws ArgumentError if the resumed run had other settings; IoError.
  using SettingsOver = std::function<std::vector<Setting>(std::int64_t schedule_steps)>;
  std::optional<RunPosition> open(const SettingsOver& settings, std::int64_t total_steps);
  /// Sets what checkpoints tell of their network, once open() is done (description() in
  /// trainer/inference/model_file.h).
  void describe(safetensors::Metadata about) {
    if (folder_) folder_->describe(std::move(about));
  }
  /// The file found by open(); empty: none.
  std::filesystem::path resumed_from() const { return found_ ? found_->path : std::filesystem::path(); }
  /// On rank 0: creates the folder again if another program has removed it. Returns whether it had.
  bool remake_folder() { return folder_ && folder_->remake(); }
  /// Lines for the user on how the run started or resumed.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Loads all parts from the checkpoint found by open(). Parts of rank 0's own callbacks are loaded there.
  void resume(const std::vector<StatePart>& parts);
  /// Sums of metrics, with a row for each rank, so that equally many ranks resume with the same bits.
  StatePart metrics_part();
  /// The best checkpoints so far, if --save-top-k is set.
  StatePart best_part();

  /// Whether --checkpoint-every requires one after this step.
  bool due(std::int64_t attempted) const {
    return config_.checkpoint_every > 0 && attempted % config_.checkpoint_every == 0;
  }
  /// Records the value of --monitor after this many steps: for the checkpoint of that step, whether already
  /// saved or next.
  void measured(double value, std::int64_t attempted) {
    measured_ = value;
    if (saved_.second == attempted) rank_among_best(attempted);
  }
  /// Saves this position unless already saved. Saves nothing while steps overflow at the lowest loss scale,
  /// or if the last validation was not finite, so that no bad checkpoint replaces a good one. Returns whether
  /// it saved; with --async-checkpoints, whether a save has started. That call also finishes the previous
  /// save and throws its IoError.
  bool save(RunPosition& position, const Limits& limits, const RunClock& clock, PhaseTimes& times,
            const std::vector<StatePart>& parts);
  /// Waits for a save in progress. Throws its IoError on all ranks.
  void wait();
  /// True once for every checkpoint written: newest().
  bool take_written() { return std::exchange(written_, false); }
  /// The newest one this run has written; empty: none.
  const std::filesystem::path& newest() const { return newest_; }
  /// "val_loss: 0.21 after 400 steps, 0.22 after 300 steps"; empty without --save-top-k.
  std::string describe_best() const;

 private:
  /// A checkpoint kept for its measured value.
  struct Best {
    std::int64_t step = 0;
    double value = 0;
  };

  void choose(NewestCheckpoint& found);
  void rank_among_best(std::int64_t step);
  void note_written();
  void write(std::int64_t step, const StateDict& state, const dist::ReadTensor& read);
  bool has_diverged(const RunPosition& position) const;

  const TrainerConfig& config_;
  ParallelStrategy& strategy_;
  const StepBuffer& step_;
  MetricSums& metrics_;
  std::optional<CheckpointFolder> folder_;  // on rank 0
  std::optional<NewestCheckpoint> found_;
  std::vector<std::string> notes_;
  std::vector<double> sums_of_all_;                      // as saved
  std::pair<std::int64_t, std::int64_t> saved_{-1, -1};  // epoch and attempted steps
  std::optional<double> measured_;
  std::vector<Best> best_;                 // best first
  std::optional<std::int64_t> under_way_;  // the step being saved
  bool written_ = false;
  std::filesystem::path newest_;
  BackgroundSave background_;  // destroyed before the members it uses
};

}  // namespace athanor
