#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/step_buffer.h"
#include "trainer/checkpoint.h"
#include "trainer/config.h"
#include "trainer/limits.h"
#include "trainer/metric_sums.h"
#include "trainer/parallel_strategy.h"
#include "trainer/phase_times.h"
#include "trainer/run_state.h"

namespace athanor {

/// The checkpoints of one run: when they are saved, by whom, and which it goes on from. A call of one of
/// these is a call of all ranks.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainerConfig& config, ParallelStrategy& strategy, const StepBuffer& step,
                 MetricSums& metrics);

  /// Opens the folder, and finds what --resume asks for: nullopt where the run begins, else its position.
  /// Throws ArgumentError where that was a run with other settings; IoError.
  std::optional<RunPosition> open(const std::vector<Setting>& settings, std::int64_t total_steps);
  /// The file that open() has found; empty: none.
  std::filesystem::path resumed_from() const { return found_ ? found_->path : std::filesystem::path(); }
  /// Lines for the user on how the run came to begin, or go on.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Loads all parts from what open() has found. Those of callbacks that rank 0 alone has are left to it.
  void resume(const std::vector<StatePart>& parts);
  /// Sums of metrics, with a row for each rank, so that as many go on with the same bits.
  StatePart metrics_part();

  /// Whether --checkpoint-every asks for one after this step.
  bool due(std::int64_t attempted) const {
    return config_.checkpoint_every > 0 && attempted % config_.checkpoint_every == 0;
  }
  /// Saves this position, unless that has been done. Saves nothing where steps overflow at the lowest loss
  /// scale, or the last validation gave no number: what cannot be trained on takes no good one's place.
  /// Whether it has.
  bool save(RunPosition& position, const Limits& limits, const RunClock& clock, PhaseTimes& times,
            const std::vector<StatePart>& parts);
  /// The newest that this run has saved; empty: none.
  const std::filesystem::path& newest() const { return newest_; }

 private:
  void choose(NewestCheckpoint& found);
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
  std::filesystem::path newest_;
};

}  // namespace athanor
