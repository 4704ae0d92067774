#pragma once  // Explained in docs/step_without_a_host.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "optim/step_buffer.h"
#include "tensor/graph.h"
#include "trainer/config.h"
#include "trainer/task.h"

namespace athanor {

class OptimizedNetworks;

// --graph. On a GPU, a step is some hundreds of kernels that the host queues one by one. Its work is the same
// each time, but for the batch, the epoch, the learning rates and what the device itself counts (StepState).
// So the host captures it as CUDA graphs, one for each pass, and from then on only
//
//     copies the batch, and a new epoch, to where the graph reads them;
//     sets the learning rates of the optimizers that the graph runs;
//     launches the graph.
//
// Work is known by a number of the task's (Task::captured_as()) and its samples: steps of another size, phase
// or choice of optimizers have graphs of their own, and so have validation batches. New work first runs as
// usual, on the graphs' memory, until it takes no more of it.

/// What is captured, and when: of one run.
class StepGraphs {
 public:
  static constexpr int kWarm = 2;         ///< new work runs so often before it is captured,
  static constexpr int kMaxFailures = 3;  ///< and is never captured after so many failures

  using Note = std::function<void(const std::string&)>;
  /// `why_not`: why_not_captured(). `on_note` receives a line if captures fail.
  StepGraphs(GraphMode mode, const std::string& why_not, StepBuffer& step, Note on_note);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  /// A note for the user; empty: steps are captured, or may not be on this device.
  const std::string& why_off() const { return why_off_; }

  /// What a piece of work is known by. Unless `number` is set, it runs as usual.
  struct Key {
    std::optional<std::int64_t> number = {};  ///< Task::captured_as()
    bool training = true;
    std::int64_t samples = 0;  ///< of all passes
    ImageSpec images = {};
    bool operator==(const Key&) const = default;
  };
  /// Begins a step, or a validation batch, that logs in memory at `sums`.
  void begin(const Key& key, const void* sums);
  /// Runs one of its passes, by work(batch) or by launching what that did before.
  template <class F> void pass(const Batch& batch, std::int64_t epoch, const F& work) {
    if (how_ == How::plain) return work(batch);
    run(batch, epoch, [&work](const Batch& staged) { work(staged); });
  }
  void end();

  /// Whether the current work may be captured: then it must not depend on what only the host knows.
  bool may_capture() const { return how_ != How::plain; }
  /// For an update inside a pass: true if the learning rates are set before each launch.
  bool sets_rates_of(OptimizedNetworks& networks);
  /// Forgets all graphs, because what steps do has changed. Waits for the device.
  void clear();
  /// Number of passes launched as graphs, and of graphs captured.
  std::int64_t launched() const { return launched_; }
  std::int64_t captured() const { return captured_; }

 private:
  enum class How : std::uint8_t { plain, warm, capture, replay };
  struct Pass {
    Graph graph;
    std::vector<OptimizedNetworks*> updated;
  };
  struct Work {
    Key key;
    const void* sums = nullptr;
    int warm = 0, failures = 0;
    bool steady = false;  // its last run took no more memory from the system
    std::vector<Pass> passes;
    std::uint64_t in_use = 0;  // GraphMemory::in_use() after the capture
  };
  Work* find(const Key& key);
  void run(const Batch& batch, std::int64_t epoch, const std::function<void(const Batch&)>& work);
  void capture(const Batch& staged, const std::function<void(const Batch&)>& work);
  void failed(const std::string& why);
  void launch(const Pass& pass);
  const Tensor& stage(const Batch& batch, std::int64_t epoch);
  Batch on_stage(const Batch& batch, const Tensor& stage) const;

  GraphMode mode_;
  std::string why_off_;
  StepBuffer& step_;
  Note on_note_;
  std::unique_ptr<GraphMemory> memory_;
  /// The memory that captured passes read batches from, by size: [bytes] u8, laid out as the loader's slots.
  std::vector<Tensor> stages_;
  Tensor epoch_;  // [] i64 on the device
  std::int64_t epoch_there_ = -1;
  std::vector<std::unique_ptr<Work>> works_;
  Work* work_ = nullptr;  // the current one
  How how_ = How::plain;
  std::size_t next_ = 0;   // pass of the current work
  std::int64_t held_ = 0;  // bytes of memory_ when the current work began
  std::vector<OptimizedNetworks*> updated_;
  std::int64_t launched_ = 0, captured_ = 0;
};

/// Why a run's steps cannot be captured: "several ranks share the steps"; empty if they can.
std::string why_not_captured(const TrainerConfig& config, int ranks, Task& task,
                             std::span<const std::unique_ptr<OptimizedNetworks>> networks);

}  // namespace athanor
