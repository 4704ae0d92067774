#pragma once

#include <memory>
#include <vector>

#include "optim/ema.h"

namespace athanor {

class ParallelStrategy;

/// Until its end(), the model has the weights used for validation: its running average, if any. Beginning and
/// end are calls of all ranks; after an exception in between, no other rank is involved.
class ValidatedModel {
 public:
  /// `averages`: those of all networks that have one.
  ValidatedModel(const std::vector<Ema*>& averages, ParallelStrategy& strategy);
  void end();

 private:
  ParallelStrategy& strategy_;
  std::vector<std::unique_ptr<EmaSwap>> swaps_;
};

}  // namespace athanor
