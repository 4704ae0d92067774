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

/// The checkpoints of one run: when they are saved, by whom, which are kept, and which it goes on from. A
/// call of one of these is a call of all ranks.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainerConfig& config, ParallelStrategy& strategy, const StepBuffer& step,
                 MetricSums& metrics);

  /// Opens the folder, and finds what --resume asks for: nullopt where the run begins, else its position.
  /// `settings` are this run's, with learning rates made for so many steps: those of the run that it goes on
  /// with, or `total_steps`, which is less or the same. Throws ArgumentError where that was a run with other
  /// settings; IoError.
  using SettingsOver = std::function<std::vector<Setting>(std::int64_t schedule_steps)>;
  std::optional<RunPosition> open(const SettingsOver& settings, std::int64_t total_steps);
  /// The file that open() has found; empty: none.
  std::filesystem::path resumed_from() const { return found_ ? found_->path : std::filesystem::path(); }
  /// Lines for the user on how the run came to begin, or go on.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Loads all parts from what open() has found. Those of callbacks that rank 0 alone has are left to it.
  void resume(const std::vector<StatePart>& parts);
  /// Sums of metrics, with a row for each rank, so that as many go on with the same bits.
  StatePart metrics_part();
  /// The best checkpoints so far, where --save-top-k keeps them.
  StatePart best_part();

  /// Whether --checkpoint-every asks for one after this step.
  bool due(std::int64_t attempted) const {
    return config_.checkpoint_every > 0 && attempted % config_.checkpoint_every == 0;
  }
  /// What --monitor watches, after so many steps: of the checkpoint of just then, be it saved already or
  /// next.
  void measured(double value, std::int64_t attempted) {
    measured_ = value;
    if (saved_.second == attempted) rank_among_best(attempted);
  }
  /// Saves this position, unless that has been done. Saves nothing where steps overflow at the lowest loss
  /// scale, or the last validation gave no number: what cannot be trained on takes no good one's place.
  /// Whether it has; with --async-checkpoints, whether that has begun. Then it is the save before it that has
  /// come to its end, and whose IoError is thrown.
  bool save(RunPosition& position, const Limits& limits, const RunClock& clock, PhaseTimes& times,
            const std::vector<StatePart>& parts);
  /// Returns when no save is under way. Throws its IoError, on all ranks.
  void wait();
  /// True once for every checkpoint that has been written: newest().
  bool take_written() { return std::exchange(written_, false); }
  /// The newest that this run has written; empty: none.
  const std::filesystem::path& newest() const { return newest_; }
  /// "val_loss: 0.21 after 400 steps, 0.22 after 300 steps"; empty: none are kept for it.
  std::string describe_best() const;

 private:
  /// A checkpoint that is kept for what was measured.
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
  std::vector<Best> best_;                 // the best one first
  std::optional<std::int64_t> under_way_;  // the step that is being saved
  bool written_ = false;
  std::filesystem::path newest_;
  BackgroundSave background_;  // ends before what it uses
};

}  // namespace athanor
