#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run/run.h"

namespace athanor {

/// The checkpoints of one run: when they are saved, which are kept, and which one to resume. All calls are
/// calls of all ranks. Rank 0 writes; it also chooses and verifies the file to resume, which all ranks read.
class RunCheckpoints {
 public:
  explicit RunCheckpoints(Run& run);

  /// Opens the folder and finds the checkpoint for --resume: if there is one, takes its position and returns
  /// true. Throws ArgumentError if that run had other settings; IoError.
  bool open();
  /// Sets what checkpoints tell of their network.
  void describe();
  /// Loads what open() found.
  void resume();
  /// The file found by open(); empty: none.
  std::filesystem::path resumed_from() const { return found_ ? found_->path : std::filesystem::path(); }
  /// Lines for the user on how the run started or resumed.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Whether --checkpoint-every requires one after this step.
  bool due() const;
  /// The value of --monitor, for the checkpoint of this step, already saved or next.
  void measured(double value);
  /// Saves this position unless already saved, or diverged: no bad checkpoint replaces a good one. With
  /// --async-checkpoints starts a save, and finishes the previous one, whose IoError it throws.
  void save();
  /// Waits for a save in progress. Throws its IoError on all ranks.
  void wait();
  /// Makes the run's folders again if another program has removed them, with a note.
  void keep_folders();
  /// The newest one this run has written; empty: none.
  const std::filesystem::path& newest() const { return newest_; }
  /// "; the last checkpoint is DIR/step-00000010.safetensors", to continue a message; empty: none.
  std::string last() const;
  /// "val_loss: 0.21 after 400 steps, 0.22 after 300 steps"; empty without --save-top-k.
  std::string describe_best() const;

 private:
  /// A checkpoint kept for its measured value.
  struct Best {
    std::int64_t step = 0;
    double value = 0;
  };

  std::vector<StatePart> state_parts();
  StatePart metrics_part();
  StatePart best_part();
  void choose(NewestCheckpoint& found);
  void rank_among_best();
  void write(const StateDict& state, const dist::ReadTensor& read);
  bool finish_save();

  Run& run_;
  std::optional<CheckpointFolder> folder_;  // on rank 0
  std::optional<NewestCheckpoint> found_;
  std::vector<std::string> notes_;
  std::vector<double> sums_of_all_;                      // of metrics, by rank, as saved
  std::pair<std::int64_t, std::int64_t> saved_{-1, -1};  // epoch and attempted steps
  std::optional<double> measured_;
  std::vector<Best> best_;                 // best first
  std::optional<std::int64_t> under_way_;  // the step being saved
  std::filesystem::path newest_;
  StateDict copy_;             // that a thread writes
  std::future<void> writing_;  // waits for the thread when destroyed, before the members that it uses
};

}  // namespace athanor
