#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "dist/pass_network.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "trainer/metric_sums.h"
#include "trainer/phase_times.h"
#include "trainer/samples.h"

namespace athanor {

/// An optimizer of a task that has several.
struct OptimizerSpec {
  std::string name;                   ///< for Step::minimize(), and "optimizer.NAME." in checkpoints
  std::vector<std::string> networks;  ///< that it trains, as Task::network() calls them; none: all
  /// Makes it; the learning rates of its groups begin at first_slot. Unset: the Trainer's.
  std::function<std::unique_ptr<Optimizer>(ParameterArena&, int first_slot)> make = {};
  Schedule schedule = {};  ///< of its learning rate; unset: the Trainer's
};

/// optimizer<Adam>("g", {"generator"}, {.beta1 = 0.5}, schedules::constant(2e-4))
template <class O>
OptimizerSpec optimizer(std::string name, std::vector<std::string> networks,
                        decltype(typename O::Group{}.options) options, Schedule schedule) {
  const auto make = [options](ParameterArena& arena, int first_slot) {
    typename O::Group group;
    group.options = options;
    return std::make_unique<O>(arena, std::vector<typename O::Group>{group}, first_slot);
  };
  return {std::move(name), std::move(networks), make, std::move(schedule)};
}

/// Who updates networks within a step: the Trainer.
class Minimizer {
 public:
  virtual void minimize(std::string_view optimizer, const Tensor& loss) = 0;

 protected:
  ~Minimizer() = default;
};

/// Where a batch stands in a run.
struct BatchPlace {
  bool training = true;
  std::int64_t epoch = 0, step = 0;  ///< 0 is the first
  std::int64_t samples = 0;          ///< of this rank
  std::int64_t first = 0,
               of_ranks = 0;   ///< where they begin among those of all ranks, and how many these are
  std::uint64_t seed = 0;      ///< of the run
  TensorOptions options = {};  ///< of what a network takes
  std::int64_t pass = 0;       ///< of the step; 0 is the first
};

/// What of a run a step can reach.
struct StepParts {
  MetricSums& metrics;
  PhaseTimes& times;
  Minimizer* minimizer = nullptr;            ///< of a training step
  const dist::PassNetwork* ranks = nullptr;  ///< of a task that gathers()
  SampleFolder* samples = nullptr;           ///< of rank 0's validation, where pictures are wanted
};

/// What a Task can do while it looks at one batch.
class Step {
 public:
  /// `draws` counts the calls of randn() in the step.
  Step(const BatchPlace& place, std::int64_t& draws, const StepParts& parts)
      : place_(place),
        draws_(draws),
        metrics_(parts.metrics),
        times_(parts.times),
        minimizer_(parts.minimizer),
        ranks_(parts.ranks),
        samples_(parts.samples) {}

  /// Of training, or after which it validates; 0 is the first.
  std::int64_t epoch() const { return place_.epoch; }
  /// Of the run's steps, skipped ones too; 0 is the first.
  std::int64_t number() const { return place_.step; }

  /// Normal random numbers with mean 0 and deviation 1, in the dtype and on the device of the batch. The
  /// first axis is that of its samples: row i belongs to sample i. A function of the run's seed, the step,
  /// how many calls in it came before, and the sample's place in the batch of all ranks: the same for any
  /// number of them, after a resume, and in every validation. Throws ArgumentError on another first axis.
  Tensor randn(const Shape& shape);

  /// The rows of all ranks, in the order of ranks, for a loss over the samples of all: t [n, ...] to [sum of
  /// n, ...]. Differentiable (dist/all_gather.h): a rank's rows collect from the losses of all ranks. With
  /// one rank, t itself. All ranks make the same calls, one without samples, too. The loss of each is then
  /// the same mean over the rows of all, or the mean over its own samples: docs/own_step.md. Throws
  /// ArgumentError where Task::gathers() does not say so.
  Tensor all_gather(const Tensor& t);

  /// Updates the networks of an optimizer by the gradients of `loss`, the mean of the batch, [] f32, at once;
  /// with several batches a step (--accumulate), with the last. Other networks that the loss went through
  /// collect nothing. The loss is logged as "NAME_loss". A task of several optimizers makes all its updates
  /// so, in the same order on all ranks, each at most once a step (of several batches: in all of them), and
  /// returns no loss. Where a gradient is not finite, this update and those behind it in the step are
  /// skipped, and the step counts as skipped. Throws ArgumentError on another name or loss, and, on all
  /// ranks, where they update different optimizers at a time.
  void minimize(std::string_view optimizer, const Tensor& loss);

  /// Measures something under a name: over the batches of an epoch and over all ranks, weighted by their
  /// samples. `value` is floating and on the device; nobody waits for it. Of several elements, their mean
  /// (sum, smallest, largest) counts. In reports, metrics and --early-stop the name is "train_NAME" where a
  /// training step logs it, "val_NAME" where a validation step does. Throws ArgumentError as
  /// MetricSums::log() does.
  void log(std::string_view name, const Tensor& value, MetricReduce reduce = MetricReduce::mean) {
    logged_loss_ |= name == "loss";
    metrics_.log(name, value, place_.samples, reduce);
  }
  /// The share of samples whose target is among the k likeliest classes, exact in any order: logits [N, C]
  /// floating, target [N] i64. Ties count as in accuracy; a row with a NaN is wrong.
  void log_top_k(std::string_view name, const Tensor& logits, const Tensor& target, std::int64_t k) {
    metrics_.add_top_k(name, logits, target, k);
  }
  /// The figures of a confusion matrix over all batches and ranks, exact: NAME_accuracy, and the means over
  /// classes NAME_precision, NAME_recall, NAME_f1 and NAME_iou (mean IoU); with `of_each`, those of each
  /// class, too, as NAME_f1/3. `prediction`: class indices (integers) of the target's shape, or floating
  /// logits
  /// [..., classes]. target: integers; what is not in [0, classes) is left out, such as 255 around a mask.
  /// Throws ArgumentError as MetricSums::add_confusion() does.
  void log_confusion(std::string_view name, const Tensor& prediction, const Tensor& target,
                     std::int64_t classes, bool of_each = false);
  /// The mean of |prediction - target| over all elements of all batches and ranks, exact: both floating, of
  /// one shape.
  void log_absolute_error(std::string_view name, const Tensor& prediction, const Tensor& target);
  /// The loss and accuracy of a classifier, exact in any order: losses [N] f32 of each sample, logits [N, C],
  /// target [N] i64.
  void log_classes(const Tensor& losses, const Tensor& logits, const Tensor& target) {
    logged_loss_ = true;
    metrics_.add(losses, logits, target);
  }

  /// In a validation step: a picture of images [N, H, W, 1 or 3], floating, in rows, for the eye:
  ///
  ///     step.images("samples", generator(noise), {.low = -1});
  ///
  /// With --run-dir DIR, rank 0 writes DIR/samples/epoch_0003_samples.png, of its part of the validation's
  /// first batch: what is given under a name again is passed over. A disk that is full is a warning. Throws
  /// ArgumentError on another shape, a name not of letters, digits, '_' and '-', and in a training step.
  void images(std::string_view name, const Tensor& images, const ImageGrid& grid = {});

  bool has_logged_loss() const { return logged_loss_; }

  PhaseTimes& times() { return times_; }

 private:
  BatchPlace place_;
  std::int64_t& draws_;
  MetricSums& metrics_;
  PhaseTimes& times_;
  Minimizer* minimizer_;
  const dist::PassNetwork* ranks_;
  SampleFolder* samples_;
  bool logged_loss_ = false;
};

/// What a run trains: networks, how a batch becomes a loss, and what is measured.
///
///     struct Denoise : Task {
///       nn::Conv2d net{3, 3, 5, {.padding = 2}};
///       Denoise() { network("net", net); }
///       Tensor training_step(const Batch& batch, Step& step) override {
///         const Tensor clean = batch["image"];
///         return mse_loss(net(clean + step.randn(clean.shape())), clean);
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
  /// updates. It is logged as "loss", unless the step logs that itself. Of a task with several optimizers,
  /// which updates by Step::minimize(): none. `batch` holds this rank's samples, prepared for a network
  /// (data/preprocess.h); it may have none, where other ranks have some and wait for this one: --sync-bn,
  /// gathers(), several optimizers.
  virtual Tensor training_step(const Batch& batch, Step& step) = 0;
  /// Logs what is to be known of a batch that is held out; by default nothing. Nothing is recorded for
  /// gradients.
  virtual void validation_step(const Batch& /*batch*/, Step& /*step*/) {}
  /// Whether steps call Step::all_gather(): all ranks then make all of them.
  virtual bool gathers() const { return false; }
  /// Whether loss and accuracy are what counts, as reports then say.
  virtual bool classifies() const { return false; }
  /// Whether training steps take the loss of mixed labels (trainer/mixed_labels.h): without, --augment mixup
  /// and cutmix are refused.
  virtual bool mixes_labels() const { return false; }
  /// Where there are several: each trains networks of its own, together all. None: the Trainer's trains all.
  virtual std::vector<OptimizerSpec> optimizers() const { return {}; }

  /// All networks as one module: the only one, or each under its name.
  nn::Module& networks();
  const std::vector<std::string>& network_names() const { return names_; }
  /// What is trained of the networks of these names; of all, where there are none.
  std::vector<Parameter> parameters_of(const std::vector<std::string>& names);
  std::vector<NamedTensor> buffers_of(const std::vector<std::string>& names);
  /// What is frozen, of all networks: parameters that ask for no gradient, buffers of frozen modules.
  std::vector<Parameter> frozen_parameters();
  std::vector<NamedTensor> frozen_buffers();

 protected:
  /// Has the run train it: called in the constructor, for a member. Its parameters are called
  /// "NAME.conv1.weight" in checkpoints; a task of one network may call it "". Throws ArgumentError where the
  /// name or the network is there already.
  void network(const std::string& name, nn::Module& module);
  /// The same for a network that the steps use as it is, a teacher for example: freezes it (nn::Module::
  /// freeze()). The run moves it to the device and into its precision, and leaves it alone; checkpoints hold
  /// it, and a run that goes on takes it from there. Of a network of network(), parts may be frozen.
  void frozen(const std::string& name, nn::Module& module);

 private:
  class Networks;
  void add(const std::string& name, nn::Module& module);
  std::vector<std::string> names_;
  nn::Module* only_ = nullptr;
  std::unique_ptr<Networks> all_;
};

}  // namespace athanor
