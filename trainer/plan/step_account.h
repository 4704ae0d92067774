#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "nn/models/model.h"
#include "optim/precision.h"
#include "trainer/config.h"
#include "trainer/flags/recipe.h"
#include "trainer/plan/gpus.h"
#include "trainer/task.h"

// The account of a training step: what its kernels read, write and compute on a GPU, predicted without one.
// The trainer takes real steps, but kernels only say what they would take (AccountContext): what follows from
// engine, optimizer and loss is in the account because it is executed.

namespace athanor {

/// Which step.
struct StepPlan {
  std::string model;
  nn::ModelOptions size = {};
  std::int64_t batch_size = 64;
  std::int64_t accumulate = 1;  ///< batches per step
  Precision precision = Precision::f32;
  OptimizerKind optimizer = OptimizerKind::sgd;
};

/// Predicted launches of one kernel in one pass of one layer.
struct AccountRow {
  std::string layer;  ///< "layer1.0.conv1"; empty: none
  std::string pass;   ///< "forward", "backward" or "update"
  std::string kernel;
  std::int64_t launches = 0;
  std::int64_t read = 0, written = 0;  ///< bytes; each byte once per launch
  std::int64_t flops = 0;              ///< two per multiply-add of products and convolutions, else 0
  bool assumed = false;  ///< a vendor's kernel: reads inputs and writes outputs once. Else counted
  /// What limits the longest launch: "memory", "compute" or "launch"; and the seconds of all at their limits.
  std::string roof;
  double seconds = 0;

  std::int64_t bytes() const { return read + written; }
};

struct StepAccount {
  std::vector<AccountRow> rows;  ///< in the order of first launches
  AccountRow total;
  std::int64_t assumed_bytes = 0;
  std::int64_t peak_bytes = 0;  ///< of tensors: weights, states, activations, batches
};

/// The least time of any kernel: from one launch to the next, there is that much between their beginnings.
inline constexpr double kLaunchSeconds = 2e-6;

/// Takes two steps, and accounts for the second: the batch of an image model, augmented as train_images does
/// by default, to the updated weights. A kernel's time is the largest of bytes by the data sheet's bandwidth,
/// FLOPs by its rate, and kLaunchSeconds. Real kernels reach a part of these rates, so the sum is a lower
/// bound. Counts what a vendor's plans may compute together, as if none were slower and without
/// TrainerConfig::deterministic. Uses the memory of a model, its optimizer and some batches, and address
/// space for activations. Throws ArgumentError as nn::make_model() does.
StepAccount account_for_step(const StepPlan& plan, const Gpu& gpu);
/// The same of steps that a Trainer with this configuration takes on a GPU: `images` must have samples for
/// two. Without `vendor`, products and convolutions are our own kernels'. Throws what Trainer::fit() throws.
StepAccount account_for_step(TrainerConfig config, Task& task, const Dataset& images, const Gpu& gpu,
                             bool vendor = true);

}  // namespace athanor
