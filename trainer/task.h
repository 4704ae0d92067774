#pragma once  // Explained in docs/reference/tasks.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
#include "trainer/metrics/loss_and_accuracy.h"
#include "trainer/metrics/top_k.h"
#include "trainer/phase_times.h"
#include "trainer/samples.h"

namespace athanor {

struct ModelInfo;

/// An optimizer of a task with several.
struct OptimizerSpec {
  std::string name;                   ///< for Step::minimize(), and "optimizer.NAME." in checkpoints
  std::vector<std::string> networks;  ///< that it trains, by their names in Task::network(); empty: all
  /// Creates it; its groups use learning rates from first_slot on. Unset: the Trainer's optimizer.
  std::function<std::unique_ptr<Optimizer>(ParameterArena&, int first_slot)> make = {};
  Schedule schedule = {};         ///< of its learning rate; unset: the Trainer's
  bool whole_parameters = false;  ///< Optimizer::kWholeParameters of what `make` creates
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
  return {std::move(name), std::move(networks), make, std::move(schedule), O::kWholeParameters};
}

/// The Trainer's interface for updates within a step.
class Minimizer {
 public:
  virtual void minimize(std::string_view optimizer, const Tensor& loss) = 0;

 protected:
  ~Minimizer() = default;
};

/// The position of a batch in a run.
struct BatchPosition {
  bool training = true;
  std::int64_t epoch = 0, step = 0;  ///< 0 is the first
  std::int64_t samples = 0;          ///< of this rank
  std::int64_t first = 0,
               of_ranks = 0;     ///< the first one's index among those of all ranks, and their number
  std::uint64_t seed = 0;        ///< of the run
  TensorOptions options = {};    ///< of a network's input
  std::int64_t pass = 0;         ///< of the step; 0 is the first
  bool may_be_captured = false;  ///< the device's work of the step
};

/// The parts of a run that a step can access.
struct StepParts {
  MetricSums& metrics;
  PhaseTimes& times;
  Minimizer* minimizer = nullptr;            ///< for a training step
  const dist::PassNetwork* ranks = nullptr;  ///< for a task with gathers()
  SampleFolder* samples = nullptr;           ///< for rank 0's validation, if it writes pictures
};

/// The services for a Task that processes one batch.
class Step {
 public:
  /// `draws` counts the calls of randn() in the step.
  Step(const BatchPosition& place, std::int64_t& draws, const StepParts& parts)
      : place_(place),
        draws_(draws),
        metrics_(parts.metrics),
        times_(parts.times),
        minimizer_(parts.minimizer),
        ranks_(parts.ranks),
        samples_(parts.samples) {}

  /// The epoch being trained, or in validation the one just trained; 0 is the first.
  std::int64_t epoch() const { return place_.epoch; }
  /// Index among the run's steps, including skipped ones; 0 is the first.
  std::int64_t number() const { return place_.step; }

  /// Normal random numbers with mean 0 and deviation 1, in the batch's dtype and on its device. The first
  /// axis is that of samples: row i belongs to sample i. They depend on the run's seed, the step, the number
  /// of earlier calls in it, and the sample's place in the global batch. So they do not depend on the number
  /// of ranks, and repeat after a resume and in every validation. Throws ArgumentError on another first axis.
  Tensor randn(const Shape& shape);

  /// Concatenates the rows of all ranks in rank order, for a loss over the global batch: t [n, ...] to [sum
  /// of n, ...]. Differentiable (dist/all_gather.h): a rank's rows collect gradients from the losses of all
  /// ranks. With one rank, returns t itself. All ranks must make the same calls, even without samples. Each
  /// rank's loss is the same mean over all rows, or the mean over its own samples: docs/reference/tasks.md.
  /// Throws ArgumentError unless Task::gathers() is true.
  Tensor all_gather(const Tensor& t);

  /// Updates the networks of an optimizer by the gradients of `loss`, the mean of the batch, [] f32, at once;
  /// with --accumulate, in the last batch of the step. Other networks on the way collect no gradients. Logs
  /// the loss as "NAME_loss". A task with several optimizers makes all updates this way and returns no loss.
  /// Updates have the same order on all ranks, each at most once per step, and in all batches of a step or
  /// none. After a non-finite gradient, this and later updates of the step are skipped, and the step counts
  /// as skipped. Throws ArgumentError on another name or loss and, on all ranks, if they update different
  /// optimizers.
  void minimize(std::string_view optimizer, const Tensor& loss);

  /// Logs a value under a name, averaged over the batches of an epoch and all ranks, weighted by samples.
  /// `value` is floating and on the device; nothing waits for it. Several elements count by their mean (sum,
  /// minimum, maximum). Reports, metrics and --early-stop use the name "train_NAME" from training steps and
  /// "val_NAME" from validation steps. Throws ArgumentError as MetricSums::add() does.
  void log(std::string_view name, const Tensor& value, MetricReduce reduce = MetricReduce::mean) {
    add(name, Logged(reduce), value, place_.samples);
  }
  /// Logs any metric (trainer/metrics/metric.h) under a name; `what` as its add() takes it.
  template <class M, class... What> void add(std::string_view name, const M& metric, const What&... what) {
    logged_loss_ |= name == "loss";
    metrics_.add(name, metric, what...);
  }
  /// Logs the share of samples whose target is among the k likeliest classes, exact in any order: logits [N,
  /// C] floating, target [N] i64. Ties count as in accuracy; a row with a NaN is wrong.
  void log_top_k(std::string_view name, const Tensor& logits, const Tensor& target, std::int64_t k) {
    add(name, TopKAccuracy(k), logits, target);
  }
  /// Logs a confusion matrix over all batches and ranks, exact: NAME_accuracy, and the means over classes
  /// NAME_precision, NAME_recall, NAME_f1 and NAME_iou (mean IoU); with `per_class` also per class, as
  /// NAME_f1/3. `prediction`: class indices (integers) of the target's shape, or floating logits [...,
  /// classes]. target: integers; values outside [0, classes) are ignored, such as 255 around a mask. Throws
  /// ArgumentError as MetricSums::add() does.
  void log_confusion(std::string_view name, const Tensor& prediction, const Tensor& target,
                     std::int64_t classes, bool per_class = false);
  /// Logs the mean of |prediction - target| over all elements of all batches and ranks, exact: both floating,
  /// of one shape.
  void log_absolute_error(std::string_view name, const Tensor& prediction, const Tensor& target);
  /// Logs the loss and accuracy of a classifier, exact in any order: losses [N] f32 of each sample, logits
  /// [N, C], target [N] i64.
  void log_classes(const Tensor& losses, const Tensor& logits, const Tensor& target) {
    add("loss", LossAndAccuracy(), losses, logits, target);
  }

  /// In a validation step: a picture of images [N, H, W, 1 or 3], floating, in rows, for inspection:
  ///
  ///     step.images("samples", generator(noise), {.low = -1});
  ///
  /// With --run-dir DIR, rank 0 writes DIR/samples/epoch_0003_samples.png from its part of the validation's
  /// first batch; later images of the same name are ignored. A full disk is a warning. Throws ArgumentError
  /// on another shape, in a training step, and on a name not of letters, digits, '_' and '-'.
  void images(std::string_view name, const Tensor& images, const ImageGrid& grid = {});

  bool has_logged_loss() const { return logged_loss_; }

  PhaseTimes& times() { return times_; }

 private:
  BatchPosition place_;
  std::int64_t& draws_;
  MetricSums& metrics_;
  PhaseTimes& times_;
  Minimizer* minimizer_;
  const dist::PassNetwork* ranks_;
  SampleFolder* samples_;
  bool logged_loss_ = false;
};

/// The subject of a run: networks, the loss of a batch, and the measurements.
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
/// The Trainer does the rest for any task: epochs, precision, loss scaling, accumulation, clipping, averages,
/// ranks, checkpoints, reports. `Classifier` (trainer/classifier.h) is the standard task.
class Task {
 public:
  Task();
  virtual ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// The mean loss of a batch, [] f32, with its graph; the Trainer scales it, runs it backward and updates.
  /// It is logged as "loss" unless the step logs that itself. A task with several optimizers updates by
  /// Step::minimize() and returns an undefined tensor. `batch` has this rank's samples as network input
  /// (data/preprocess.h). It may have none if other ranks have some and wait for this one: --sync-bn,
  /// gathers(), several optimizers.
  virtual Tensor training_step(const Batch& batch, Step& step) = 0;
  /// Logs measurements of a validation batch; by default nothing. Gradients are not recorded.
  virtual void validation_step(const Batch& /*batch*/, Step& /*step*/) {}
  /// Whether steps call Step::all_gather(): all ranks then make all steps.
  virtual bool gathers() const { return false; }
  /// Whether the device's work of a step, or validation batch, may be captured once and launched again from
  /// then on (--graph), without a call of the step. If so, a number: steps of the same number and size must
  /// queue the same work, on the same tensors, whatever epoch(), number() and the host's memory say. They
  /// must not wait for the device, draw randn() or show images(). By default no step is captured.
  virtual std::optional<std::int64_t> captured_as(const BatchPosition& /*place*/) const {
    return std::nullopt;
  }
  /// Called after each validation_step(), also after one that was not called because its work was captured.
  virtual void validated(const Batch& /*batch*/) {}
  /// Whether loss and accuracy are the main metrics, for reports.
  virtual bool classifies() const { return false; }
  /// Whether training steps use the loss of mixed labels (trainer/mixed_labels.h); otherwise --augment mixup
  /// and cutmix are refused.
  virtual bool mixes_labels() const { return false; }
  /// Adds to a model file's description what this task knows of the network's results: ModelInfo::task and
  /// the members that it needs. `measured`: the validation of these weights, if there was one.
  virtual void describe(ModelInfo& /*info*/, const Metrics& /*measured*/) const {}
  /// Values computed from the totals of an epoch, reported, watched and kept as any logged value.
  virtual std::vector<ValueOfSums> values_of_sums() const { return {}; }
  /// Several optimizers, each for its own networks, together all. Empty: the Trainer's optimizer trains all.
  virtual std::vector<OptimizerSpec> optimizers() const { return {}; }

  /// All networks as one module: the only one, or each under its name.
  nn::Module& networks();
  const std::vector<std::string>& network_names() const { return names_; }
  /// The trained parameters of these networks, or of all if there are no names.
  std::vector<Parameter> parameters_of(const std::vector<std::string>& names);
  std::vector<NamedTensor> buffers_of(const std::vector<std::string>& names);
  /// The frozen tensors of all networks: parameters without gradients, buffers of frozen modules.
  std::vector<Parameter> frozen_parameters();
  std::vector<NamedTensor> frozen_buffers();

 protected:
  /// Registers a network for training: call it in the constructor, for a member. In checkpoints its
  /// parameters are named "NAME.conv1.weight"; a single network may be named "". Throws ArgumentError if the
  /// name or network is already registered.
  void network(const std::string& name, nn::Module& module);
  /// Registers a network that steps use unchanged, such as a teacher: freezes it (nn::Module::freeze()). The
  /// run moves it to the device and into its precision but does not train it; checkpoints contain it, and
  /// resumed runs restore it. Parts of a network of network() may be frozen too.
  void frozen(const std::string& name, nn::Module& module);

 private:
  class Networks;
  void add(const std::string& name, nn::Module& module);
  std::vector<std::string> names_;
  nn::Module* only_ = nullptr;
  std::unique_ptr<Networks> all_;
};

}  // namespace athanor
