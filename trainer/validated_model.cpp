#include "trainer/validated_model.h"

#include "trainer/parallel_strategy.h"

namespace athanor {

ValidatedModel::ValidatedModel(const std::vector<Ema*>& averages, ParallelStrategy& strategy)
    : strategy_(strategy) {
  if (averages.empty()) return;
  strategy_.complete_weights();
  for (Ema* const average : averages) swaps_.push_back(std::make_unique<EmaSwap>(*average));
  strategy_.complete_weights();
}

void ValidatedModel::end() {
  if (swaps_.empty()) return;
  for (const auto& swap : swaps_) swap->end();
  swaps_.clear();
  strategy_.complete_weights();
}

}  // namespace athanor
