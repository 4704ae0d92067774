#pragma once

#include <cstdint>
#include <memory>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "trainer/task.h"

// Trainings of a hundredth of a second, of tasks that are no classifier.

namespace athanor::test {

/// Images through a bottleneck: no labels, no classes, two networks.
struct Autoencoder : Task {
  nn::Linear encoder{16, 6, {.activation = Activation::relu}}, decoder{6, 16};
  Autoencoder() {
    network("encoder", encoder);
    network("decoder", decoder);
    networks().initialize(7);
  }
  Tensor error(const Batch& batch) {
    const Tensor x = flatten(batch["image"]);
    return mse_loss(decoder(encoder(x)), x);
  }
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("samples", full({}, static_cast<double>(batch.size()), {DType::f32, kCpu}), MetricReduce::sum);
    return loss;
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("loss", loss);
    step.log("score", affine(loss, -10));
  }
};

inline RecordedRun train(Task& task, const TrainerConfig& config, dist::Transport* transport = nullptr,
                         std::unique_ptr<Callback> callback = nullptr) {
  RecordedRun run;
  Trainer trainer(config, transport);
  trainer.add(std::make_unique<Recorder>(run));
  if (callback) trainer.add(std::move(callback));
  run.report = trainer.fit(task, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  run.weights = weights_of(task.networks());
  return run;
}

/// Ends the run after a step; where there are several ranks, one of them asks for it.
struct StopAfter final : Callback {
  explicit StopAfter(std::int64_t after, int by_rank = 0) : attempted(after), rank(by_rank) {}
  void on_step_end(Trainer& trainer, const StepInfo& step) override {
    if (step.attempted == attempted && trainer.rank() == rank) trainer.stop(StoppedBy::max_time, "enough");
  }
  bool reads_weights() const override { return false; }
  std::int64_t attempted;
  int rank;
};

inline TrainerConfig adam_config() {
  TrainerConfig config = small_config();
  config.epochs = 4;
  config.lr = 0.05;
  return config;
}

template <class T> RecordedRun train_small() {
  T task;
  return train(task, adam_config());
}

}  // namespace athanor::test
