#pragma once

#include <cstdint>

#include "data/loader.h"
#include "nn/module.h"
#include "tensor/tensor.h"
#include "trainer/metric_sums.h"
#include "trainer/phase_times.h"

namespace athanor {

/// One pass over a batch, as a Task sees it.
struct Pass {
  std::int64_t epoch = 0;  ///< 0 is the first
  MetricSums& metrics;     ///< what the pass adds its own to
  PhaseTimes& times;
};

/// What is trained: a network, how a batch becomes a loss, and what is measured. The loop knows no more of
/// it; `Classifier` (trainer/classifier.h) is the stock one.
class Task {
 public:
  virtual ~Task() = default;

  virtual nn::Module& network() = 0;
  /// The mean loss of a batch, [] f32, with its graph; the loop weighs and scales it, and runs it backward.
  /// `batch` may have no samples, where other ranks have some.
  virtual Tensor training_step(const Batch& batch, Pass& pass) = 0;
  virtual void validation_step(const Batch& batch, Pass& pass) = 0;
};

}  // namespace athanor
