#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/grad_mode.h"
#include "dist/sync_batch_norm.h"
#include "optim/step.h"
#include "trainer/loggers/step_log.h"
#include "trainer/run/run.h"
#include "trainer/step_graphs.h"

namespace athanor {

/// Makes the steps of a run: their passes, their updates, and what drops or repeats a step.
class StepExecutor : private Minimizer {
 public:
  explicit StepExecutor(Run& run);

  /// At the first step of this process: rates in logs count from here.
  void begin() { step_logs_.begin(place_of_step(0)); }
  /// One step, as in optim/step.h, of that many samples over all ranks; false if ranks have agreed to stop
  /// before it.
  bool step(std::int64_t samples);
  /// Notes for ATHANOR_DIST_DEBUG=1 (CommunicatorOptions::compare_calls).
  void report_unused_parameters();
  /// After a step: if `patience` consecutive ones known to all ranks have overflowed at the lowest loss
  /// scale, finds the parameter and the op, and throws DivergedError on all ranks.
  void check_overflows(const StepState& known, std::int64_t patience);

  StepGraphs& graphs() { return graphs_; }
  /// As in StepParts.
  const dist::PassNetwork* gathering() const { return run_.task.gathers() ? &*joined_ : nullptr; }

 private:
  void run_passes(std::int64_t samples, bool updates = true);
  BatchPosition place_of_pass(std::int64_t done, bool updates) const;
  void run_work(const Batch& batch);
  void run_first_pass(const Batch& batch);
  void run_pass(const Batch& batch);
  void add_gradients(OptimizedNetworks& networks, const Tensor& loss);
  void update(OptimizedNetworks& networks);
  void minimize(std::string_view optimizer, const Tensor& loss) override;
  void check_result(const Tensor& returned) const;
  void check_leaves(const Tensor& loss) const;
  void repeat_step();
  StepLogs::Place place_of_step(std::int64_t samples) const;
  const std::vector<std::unique_ptr<OptimizedNetworks>>& networks() const { return run_.networks.all(); }
  /// Whether steps return their loss and this updates: with a single optimizer.
  bool returns_loss() const { return networks().size() == 1; }

  Run& run_;
  LossScaling scaling_;
  GradientLimits gradient_limits_;
  StepLogs step_logs_;
  StepGraphs graphs_;
  std::optional<dist::PassNetwork> joined_;  // for passes in which ranks wait for each other
  std::unique_ptr<dist::SyncBatchNorm> norms_;
  bool overlaps_weights_ = false;
  std::optional<NoFusion> no_fusion_;
  std::vector<char> named_;  // per rank: report_unused_parameters() has reported it

  struct Now {
    std::int64_t samples = 0;      // of all passes and ranks
    std::int64_t draws = 0;        // of random numbers, by the task
    std::uint64_t first_node = 0;  // number of the pass's first node
    BatchPosition pass = {};       // the current pass
    bool joins = false;            // ranks without samples take part
    bool updates = false;          // it is the last one
    int made = 0;                  // number of updates
    bool dropped = false;          // its updates are dropped
  } now_;                          // the current step
};

}  // namespace athanor
