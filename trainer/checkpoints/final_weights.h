#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "data/dataset.h"
#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/inference/model_file.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// The weights that a run leaves in its folder. All calls are calls of all ranks.
class FinalWeights {
 public:
  using Weights = std::function<StateDict()>;  ///< masters and buffers, possibly a part of them

  FinalWeights(const TrainerConfig& config, ParallelStrategy& strategy)
      : config_(config), strategy_(strategy) {}

  /// Whether the run saves its weights, and whether they may differ from the last step's: the best ones, or
  /// their average.
  bool wanted() const { return !config_.run_dir.empty() && !config_.fast_dev_run; }
  bool may_differ() const { return wanted() && (config_.judged_by() || config_.ema_decay > 0); }
  /// Saves the last step's weights.
  void save_last(const Weights& weights, ModelInfo info);
  /// Saves the weights of `report`, and records the files in it.
  void save(const Weights& weights, ModelInfo info, FitReport& report);

 private:
  void write(const std::filesystem::path& path, const Weights& weights, const ModelInfo& info);

  const TrainerConfig& config_;
  ParallelStrategy& strategy_;
  bool has_last_ = false;
  std::uint64_t last_hash_ = 0;
};

}  // namespace athanor
