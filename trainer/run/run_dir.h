#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoints/run_folder.h"
#include "trainer/parallel_strategy.h"
#include "trainer/run/observers.h"

namespace athanor {

/// The folder of a trainer's runs: which one, and on rank 0 its lock.
class RunDir {
 public:
  /// `whole`: the config without a phase.
  RunDir(TrainerConfig& config, TrainerConfig& whole, ParallelStrategy& strategy)
      : config_(config), whole_(whole), strategy_(strategy) {}
  ~RunDir() {
    if (!unused_.empty()) remove_unused_run_folder(unused_);
  }
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  /// Locks --run-dir.
  void lock();
  /// With --run-root: completes the configs with the folder of a new run or, to resume, an unfinished one
  /// with these settings, and returns true. A call of all ranks.
  bool choose(const std::vector<Setting>& settings);
  /// A line for the user about that choice; mostly empty.
  const std::string& note() const { return note_; }
  /// All checks have passed: from here on the run writes to its folder.
  void begin(const Observers& observers);
  bool begun() const { return begun_; }
  /// On rank 0: makes the folder again if another program has removed or emptied it. Returns whether it had.
  bool remake(const Observers& observers);

 private:
  TrainerConfig& config_;
  TrainerConfig& whole_;
  ParallelStrategy& strategy_;
  std::unique_ptr<FolderLock> lock_;  // null if the run's checkpoints are in the same folder, which lock it
  bool is_numbered_ = false;          // the folder is one below config.run_root
  std::string note_;
  std::filesystem::path unused_;  // of a run that has not begun
  bool begun_ = false;
};

}  // namespace athanor
