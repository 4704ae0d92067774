#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"
#include "nn/module.h"
#include "tensor/tensor.h"
#include "trainer/metric_sums.h"
#include "trainer/phase_times.h"

namespace athanor {

/// What a Task can do while it looks at one batch.
class Step {
 public:
  /// `samples`: of the batch, on this rank.
  Step(std::int64_t epoch, std::int64_t samples, MetricSums& metrics, PhaseTimes& times)
      : epoch_(epoch), samples_(samples), metrics_(metrics), times_(times) {}

  std::int64_t epoch() const { return epoch_; }  ///< 0 is the first

  /// Measures something under a name: over the batches of an epoch and over all ranks, weighted by their
  /// samples. `value` is floating and on the device; nobody waits for it. Of several elements, their mean
  /// (sum, smallest, largest) counts. In a training step the name then is "train_NAME" in reports, metrics
  /// and
  /// --early-stop, in a validation step "val_NAME". Throws ArgumentError as MetricSums::log() does.
  void log(std::string_view name, const Tensor& value, MetricReduce reduce = MetricReduce::mean) {
    logged_loss_ |= name == "loss";
    metrics_.log(name, value, samples_, reduce);
  }
  /// The loss and accuracy of a classifier, exact in any order: losses [N] f32 of each sample, logits [N, C],
  /// target [N] i64.
  void log_classes(const Tensor& losses, const Tensor& logits, const Tensor& target) {
    logged_loss_ = true;
    metrics_.add(losses, logits, target);
  }
  bool has_logged_loss() const { return logged_loss_; }

  PhaseTimes& times() { return times_; }

 private:
  std::int64_t epoch_, samples_;
  MetricSums& metrics_;
  PhaseTimes& times_;
  bool logged_loss_ = false;
};

/// What a run trains: networks, how a batch becomes a loss, and what is measured.
///
///     struct Denoise : Task {
///       UNet net{3, 3};
///       Denoise() { network("net", net); }
///       Tensor training_step(const Batch& batch, Step& step) override {
///         const Tensor clean = batch["image"];
///         return mse_loss(net(with_noise(clean)), clean);
///       }
///     };
///
/// The Trainer does the rest, whatever the task: epochs, precision, loss scaling, accumulation, clipping,
/// averages, ranks, checkpoints, reports. `Classifier` (trainer/classifier.h) is the stock task.
class Task {
 public:
  Task();
  virtual ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// The mean loss of a batch, [] f32, with its graph; the Trainer weighs and scales it, runs it backward and
  /// updates. It is logged as "loss", unless the step logs that itself. `batch` holds this rank's samples,
  /// prepared for a network (data/preprocess.h); it may have none, where other ranks have some and batch
  /// norms span all (--sync-bn).
  virtual Tensor training_step(const Batch& batch, Step& step) = 0;
  /// Logs what is to be known of a batch that is held out. Nothing is recorded for gradients.
  virtual void validation_step(const Batch& batch, Step& step) = 0;

  /// All networks as one module: the only one, or each under its name.
  nn::Module& networks();

 protected:
  /// Has the run train it: called in the constructor, for a member. Its parameters are called
  /// "NAME.conv1.weight" in checkpoints; a task of one network may call it "". Throws ArgumentError where the
  /// name or the network is there already.
  void network(const std::string& name, nn::Module& module);

 private:
  class Networks;
  nn::Module* only_ = nullptr;
  std::unique_ptr<Networks> all_;
};

}  // namespace athanor
