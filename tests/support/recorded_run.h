#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/trainer.h"

namespace athanor::test {

/// What a training told its callbacks, and what it left.
struct RecordedRun {
  FitReport report;
  std::vector<EpochReport> epochs;
  std::vector<StepInfo> steps;
  std::vector<StepReport> results;
  std::vector<std::string> notes;
  std::vector<double> weights;
  std::string nothing_to_do;
  std::vector<std::uint64_t> hashes;  ///< of this rank's own weights after every step, where asked for
};

using OnStep = std::function<void(Trainer&, const StepInfo&)>;
using OnReport = std::function<void(Trainer&, const EpochReport&)>;

/// A callback of a test's functions.
struct On final : Callback {
  OnStep step_end = {};
  OnReport validated = {}, epoch_end = {};
  bool reads = true;

  void on_step_end(Trainer& trainer, const StepInfo& step) override {
    if (step_end) step_end(trainer, step);
  }
  void on_validated(Trainer& trainer, const EpochReport& report) override {
    if (validated) validated(trainer, report);
  }
  void on_epoch_end(Trainer& trainer, const EpochReport& report) override {
    if (epoch_end) epoch_end(trainer, report);
  }
  bool reads_weights() const override { return reads; }
};
inline std::unique_ptr<Callback> on_step(OnStep f, bool reads = true) {
  auto on = std::make_unique<On>();
  on->step_end = std::move(f);
  on->reads = reads;
  return on;
}
inline std::unique_ptr<Callback> on_validated(OnReport f) {
  auto on = std::make_unique<On>();
  on->validated = std::move(f);
  return on;
}
inline std::unique_ptr<Callback> on_epoch(OnReport f) {
  auto on = std::make_unique<On>();
  on->epoch_end = std::move(f);
  return on;
}

class Recorder final : public Callback {
 public:
  explicit Recorder(RecordedRun& run, OnStep on_step = {}, bool hashes = false)
      : run_(run), on_step_(std::move(on_step)), hashes_(hashes) {}
  void on_fit_begin(Trainer&, const FitInfo& info) override {
    run_.notes = info.notes;
    run_.nothing_to_do = info.nothing_to_do;
  }
  void on_step_end(Trainer& trainer, const StepInfo& step) override {
    run_.steps.push_back(step);
    if (hashes_ && !trainer.arena().shards().sharded()) run_.hashes.push_back(trainer.arena().weights_hash());
    if (on_step_) on_step_(trainer, step);
  }
  void on_step_result(Trainer&, const StepReport& report) override { run_.results.push_back(report); }
  void on_epoch_end(Trainer&, const EpochReport& report) override { run_.epochs.push_back(report); }
  void on_note(Trainer&, const std::string& note) override { run_.notes.push_back(note); }
  bool reads_weights() const override { return on_step_ != nullptr; }

 private:
  RecordedRun& run_;
  OnStep on_step_;
  bool hashes_;
};

inline std::vector<double> weights_of(const nn::Module& model) {
  std::vector<double> weights;
  for (const Parameter& parameter : model.parameters()) {
    const auto values = parameter.tensor.detach().to(kCpu).to_vector();
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

/// trainer.fit(), recorded by a callback behind those it has.
inline RecordedRun record(Trainer& trainer, nn::Module& model, const Dataset& train, const Dataset& held_out,
                          const OnStep& on_step = {}, bool hashes = false) {
  RecordedRun run;
  trainer.add(std::make_unique<Recorder>(run, on_step, hashes));
  run.report = trainer.fit(model, train, held_out);
  run.weights = weights_of(model);
  return run;
}

}  // namespace athanor::test
