#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/op_observer.h"
#include "trainer/callback.h"
#include "trainer/parallel_strategy.h"
#include "trainer/profile/roof.h"

namespace athanor {

/// The total cost of one op in one layer, in one direction.
struct OpTotal {
  const char* op;
  const char* layer;  ///< null: unknown
  bool backward;
  std::int64_t calls = 0;
  double seconds = 0;  ///< on the host: on a GPU, to queue the work
  double bytes = 0;    ///< of inputs and outputs; backward, of their gradients
  double flops = 0;    ///< of convolutions and matrix products; else 0
};

/// For --profile simple: number of runs and time of each op.
std::string text_by_op(const std::vector<OpTotal>& totals, const Roof& roof);
/// For --profile advanced: time of each layer forward and backward, in the order of first calls.
std::string text_by_layer(const std::vector<OpTotal>& totals);

/// --profile: listens to the ops of training steps, on its thread, but not to validation and trial steps.
/// With Profile::trace it writes the content of the trace ring at the end of training.
class Profiler final : public Callback, private OpObserver {
 public:
  /// `strategy` gathers the traces of several ranks.
  Profiler(Profile kind, ParallelStrategy& strategy) : kind_(kind), strategy_(strategy) {}
  ~Profiler() override { end(); }

  void on_fit_begin(Trainer& trainer, const FitInfo& info) override;
  void on_step_begin(Trainer&, const StepInfo&) override;
  void on_step_end(Trainer&, const StepInfo&) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  void on_validation_begin(Trainer&) override { end_step(); }
  void on_train_end(Trainer& trainer) override;
  void on_exception(Trainer&, const std::exception&) override { end(); }
  bool reads_weights() const override { return false; }

  /// Since training began, largest first.
  std::vector<OpTotal> totals() const;
  std::string text() const;

 private:
  struct Key {
    const char* op;
    const char* layer;
    bool backward;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.op) * 31 + std::hash<const void*>()(key.layer) * 2 + key.backward;
    }
  };
  struct Open {
    std::int64_t begin_ns, within_ns;  // start time, and time spent in ops inside it
    const char* name;
  };

  void recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) override;
  void backward_began(const char* op, const char* layer) override;
  void backward_ended(const char* op, const char* layer, const Tensor& dy,
                      std::span<const Tensor> dx) override;
  void layer_began(const char* layer) override;
  void layer_ended(const char* layer) override;
  void pass_began() override;

  void add(const Key& key, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t within_ns, double bytes,
           double flops);
  void end_layer_backward();
  void end_step();
  void end();

  Profile kind_;
  ParallelStrategy& strategy_;
  nn::Module* networks_ = nullptr;         // while their layers are named
  std::optional<ObserveScope> observing_;  // from the beginning of a fit to its end
  Roof roof_;
  double opening_s_ = 0;
  std::filesystem::path trace_;
  std::string not_written_;  // why the trace was not written
  std::unordered_map<Key, OpTotal, Hash> totals_;
  std::vector<const OpTotal*> order_;  // in the order of first calls

  // Of the current step.
  bool in_step_ = false;
  std::int64_t step_ns_ = 0, last_ns_ = 0;  // start of the step, and end of the last op
  std::vector<Open> backward_, layers_;
  const char* layer_backward_ = nullptr;  // layer whose gradients are being computed, since layer_ns_
  std::int64_t layer_ns_ = 0;
};

}  // namespace athanor
