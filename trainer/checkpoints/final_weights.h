#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/run/run.h"

namespace athanor {

/// The weights that a run leaves in its folder. All calls are calls of all ranks.
class FinalWeights {
 public:
  explicit FinalWeights(Run& run) : run_(run) {}

  bool wanted() const { return !run_.config.run_dir.empty() && !run_.config.fast_dev_run; }
  /// From the last step's: the best ones, or their average.
  bool may_differ() const { return wanted() && (run_.config.judged_by() || run_.config.ema_decay > 0); }
  /// Saves the last step's weights.
  void save_last(const Metrics& measured);
  /// Saves the weights of `report`, and records the files in it.
  void save(const Metrics& measured, FitReport& report);

 private:
  void write(const std::filesystem::path& path, const std::string& which, std::uint64_t hash,
             const Metrics& measured);

  Run& run_;
  bool has_last_ = false;
  std::uint64_t last_hash_ = 0;
};

}  // namespace athanor
