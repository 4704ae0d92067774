#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/step/step_timer.h"
#include "bench/step/workload.h"
#include "kernels/vendor_stats.h"
#include "trainer/plan/step_account.h"

namespace athanor::bench {

/// Launches of one kernel, or calls of a vendor's for one op, in a training step.
struct StepRow {
  std::string layer, pass, name;
  cuda::Queued kind = cuda::Queued::kernel;
  std::int64_t launches = 0;          ///< in a step; of the last one, should steps differ
  double us = 0;                      ///< in a step: the median of those measured
  std::int64_t accounted = 0;         ///< launches by the account
  std::int64_t bytes = 0, flops = 0;  ///< by the account; of copies and fills, as they were queued
};

/// Steps that the host queues one after the other.
struct StepRates {
  std::int64_t steps = 0;
  double images_per_s = 0;
  double step_ms = 0, p10_ms = 0, p90_ms = 0;  ///< by the device's clock
  double host_ms = 0;                          ///< median, to queue a step while the device is idle
  /// In all of the steady steps; each must be 0. Allocations: requests for device or pinned memory.
  std::int64_t syncs = 0, allocations = 0, plans = 0;
};

struct StepResult {
  StepWorkload workload;
  double began_s = 0, ended_s = 0;  ///< since 1970
  std::optional<StepRates> plain, graph;
  std::string why_no_graph;
  std::vector<StepRow> rows;  ///< by layer, pass and kernel; those of the account first
  double timed_step_ms = 0;   ///< median, with an event before and after each launch
  StepAccount account;
  VendorStats vendor;              ///< of this workload
  std::vector<std::string> notes;  ///< what its runs said, of refused plans among others
  ProfiledLaunch profiled;         ///< what a profiler was to see,
  bool profiled_ran = false;       ///< and did

  /// The rows by kernel, those that take longest first.
  std::vector<StepRow> kernels() const;
  /// Rows, other than copies and fills, whose launches are not those of the account.
  std::vector<StepRow> off_account() const;
};

struct StepOptions {
  StepPhases phases;
  bool plain = true, graph = true;
  bool fused = true;  ///< TrainerConfig::fused
  /// The kernel whose launch with the most bytes a profiler sees; empty: none.
  std::string profile_launch = {};
  /// Called with what there is so far after the first step, and when a phase has its figures: a run that is
  /// cut off loses the others alone.
  std::function<void(const StepResult&)> on_phase = {};
};

/// Trains as a Trainer does, without the network's data in the way. Throws what Trainer::fit() throws.
StepResult measure_step(const StepWorkload& workload, const StepOptions& options, Device device);

/// A signature's candidates, each measured as the library does when it chooses.
struct PlanTimes {
  std::string signature;
  /// Of each of the vendor's plans, in its order; infinite: slower than three times the best so far.
  std::vector<double> ms;
  double own_ms = 0;     ///< of our own kernel; 0: not measured
  double chosen_ms = 0;  ///< the best of those that the library measures by default
  double best_ms = 0;    ///< of all
};

/// The signatures of a step, with up to `most` plans of each; reads and writes no plan folder. A convolution
/// that also sums its channels is there twice: with " sums", where own_ms is that of two passes, and without.
/// `on_signature` is called with those so far. Throws ArgumentError in a build without a vendor.
std::vector<PlanTimes> measure_plans(
    const StepWorkload& workload, int most, Device device,
    const std::function<void(const std::vector<PlanTimes>&)>& on_signature = {});

}  // namespace athanor::bench
