#pragma once

#include <functional>
#include <vector>

#include "dist/bucket_runner.h"
#include "dist/collectives/communicator.h"

namespace athanor::scale {

/// What a step costs on one rank: ResNet-50, whose layers take as long as their multiply-adds at a given
/// rate.
struct StepCosts {
  int samples_per_rank = 32;
  double flops_per_second = 40e12;  ///< kept up: multiplications and additions
  double pump_every =
      20e-6;                 ///< how often a backward pass looks at messages, in s, where it is not simulated
  int gradient_bytes = 2;    ///< bf16
  double update_bytes = 28;  ///< read and written per parameter: AdamW, f32 masters, bf16 weights
  double memory_bytes_per_second = 3e12;
  /// Seconds that the agreement is said to take; 0: it is made. P (P - 1) messages at a time are nothing for
  /// a network and minutes for its simulation.
  double agreement = 0;
};

struct StepOptions {
  StepCosts costs;
  bool zero1 = false;
  dist::Overlap overlap = dist::Overlap::pumped;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
};

struct StepTimes {
  struct Bucket {
    std::int64_t bytes = 0;
    double complete = 0;  ///< seconds from the beginning of the step until its gradients are there
  };
  std::vector<Bucket> buckets;
  double alone = 0;  ///< seconds of the same step on one rank, which computes and updates, and sends nothing
  double step = 0;   ///< until the last rank may begin its next one
  double exposed = 0;  ///< of `step`, what is neither computing nor updating
};

/// A training step: forward, which with ZeRO-1 waits for weights, a bucket at a time, that are being
/// gathered; backward with the buckets of gradients on their way as they fill; the agreement; the update. All
/// ranks call it alike.
StepTimes time_step(dist::Communicator& comm, const StepOptions& options);

/// Seconds that `run` takes, from a moment that is the same on all ranks to the end of the last. It is run
/// once before, which grows memory, except where ranks are simulated and memory takes no time.
double time_alike(const std::function<void()>& run);

}  // namespace athanor::scale
