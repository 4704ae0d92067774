#include "trainer/classifier.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "autograd/compare.h"
#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/sample_weights.h"
#include "tensor/base/error.h"
#include "tensor/state_dict.h"
#include "trainer/mixed_labels.h"

namespace athanor {

Tensor balanced_weights(const Dataset& data) {
  const std::int64_t classes = data.spec().classes;
  const std::vector<std::int64_t> images = class_sizes(data, "--class-weights");
  double present = 0;
  for (const std::int64_t count : images) present += count > 0;
  std::vector<float> weights;
  for (const std::int64_t count : images)
    weights.push_back(count > 0 ? static_cast<float>(static_cast<double>(data.size()) /
                                                     (present * static_cast<double>(count)))
                                : 0);
  return Tensor::from(weights, {classes});
}

Tensor class_weights(const ClassWeights& how, const Dataset& data) {
  if (how.balanced) return balanced_weights(data);
  if (how.of.empty()) return {};
  const std::int64_t classes = data.spec().classes;
  std::vector<std::string> names = data.class_names();
  for (std::int64_t c = std::ssize(names); c < classes; ++c) names.push_back(fmt::to_string(c));
  std::vector<float> weights(static_cast<std::size_t>(classes), 1);
  for (const auto& [name, weight] : how.of) {
    const auto at = std::find(names.begin(), names.end(), name);
    ATH_CHECK(at != names.end(),
              "--class-weights: must name classes of the training images, {}, but '{}' is none of them",
              list_names(names), name);
    weights[static_cast<std::size_t>(at - names.begin())] = static_cast<float>(weight);
  }
  return Tensor::from(weights, {classes});
}

// The first rows.
static Tensor rows_of(const Tensor& all, std::int64_t rows) {
  Shape shape = all.shape();
  shape[0] = rows;
  return all.view_as_strided(shape, all.strides(), 0);
}

Classifier::Classifier(nn::Module& model, std::int64_t classes, double smoothing, Tensor class_weights,
                       const TaskLoss& loss)
    : model_(model),
      classes_(classes),
      smoothing_(smoothing),
      class_weights_(std::move(class_weights)),
      loss_(loss_for(LabelKind::classes, loss)) {
  network("", model);
}

Tensor Classifier::training_step(const Batch& batch, Step& step) {
  const Tensor logits = model_(batch["image"]);
  ATH_CHECK(logits.shape() == (Shape{batch.size(), classes_}),
            "trainer: the model must return logits {}, but got {}", (Shape{batch.size(), classes_}),
            logits.shape());
  CrossEntropy loss = training_loss(logits, batch.labels, batch);
  if (batch.partner_labels.defined()) {
    const CrossEntropy partners = training_loss(logits, batch.partner_labels, batch);
    loss = {mix_by_share(batch, loss.mean, partners.mean), mix_by_share(batch, loss.losses, partners.losses)};
  }
  // Not from the batch mean: f32 means weighted by ranks' shares differ from a single rank's mean.
  step.log_classes(loss.losses, logits, main_labels(batch));
  return loss.mean;
}

CrossEntropy Classifier::training_loss(const Tensor& logits, const Tensor& labels, const Batch& batch) const {
  const bool of_each_class = loss_.kind != LossKind::cross_entropy;
  if (!class_weights_.defined() && !of_each_class && !loss_.weighs_samples)
    return cross_entropy_of_each(logits, labels, smoothing_);
  Tensor losses = of_each_class ? mean_of_rows(losses_of_classes(logits, labels))
                                : cross_entropy(logits, labels, smoothing_, Reduction::none);
  if (class_weights_.defined()) losses = losses * index_select(class_weights_, 0, labels);
  losses = weighted(loss_, losses, batch);
  return {mean(losses), losses.detach()};
}

// Against 1 for the label and 0 for other classes.
Tensor Classifier::losses_of_classes(const Tensor& logits, const Tensor& labels) const {
  const Tensor outputs = logits.dtype() == DType::f64 ? logits : cast(logits, DType::f32);
  const Tensor classes = arange(0, static_cast<double>(classes_), 1, {DType::i64, logits.device()});
  const Tensor target = cast(eq(unsqueeze(labels, 1), classes), outputs.dtype());
  const double spread = smoothing_ / static_cast<double>(classes_);
  return loss_of_each(loss_, outputs, affine(target, 1 - smoothing_, spread));
}

void Classifier::validation_step(const Batch& batch, Step& step) {
  const Tensor x = batch["image"], logits = views_(model_, x);
  const Tensor losses = cross_entropy(logits, batch.labels, 0, Reduction::none);
  step.log_classes(losses, logits, batch.labels);
  if (!watch_) return;
  // A captured step writes them each time, to where it once wrote them.
  const auto keep = [&](const Tensor& result, Tensor& to) {
    if (!batch.epoch.defined()) {
      to = result.detach();
      return;
    }
    if (!to.defined() || to.dim(0) < result.dim(0)) to = Tensor::empty(result.shape(), result.options());
    rows_of(to, result.dim(0)).copy_bytes_from(result.detach());
  };
  keep(losses, losses_);
  keep(logits, logits_);
}

void Classifier::validated(const Batch& batch) {
  if (watch_) watch_(rows_of(losses_, batch.size()), rows_of(logits_, batch.size()), batch);
}

}  // namespace athanor
