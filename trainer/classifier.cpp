#include "trainer/classifier.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tensor/base/error.h"
#include "trainer/mixed_labels.h"

namespace athanor {

Tensor balanced_weights(const Dataset& data) {
  const std::int64_t classes = data.spec().classes;
  std::vector<double> images(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const std::int64_t label = data.label(i);
    ATH_CHECK(label >= 0 && label < classes,
              "--class-weights: the label of image {} must be in [0, {}), but is {}", i, classes, label);
    ++images[static_cast<std::size_t>(label)];
  }
  double present = 0;
  for (const double count : images) present += count > 0;
  std::vector<float> weights;
  for (const double count : images)
    weights.push_back(count > 0 ? static_cast<float>(static_cast<double>(data.size()) / (present * count))
                                : 0);
  return Tensor::from(weights, {classes});
}

// The first rows.
static Tensor rows_of(const Tensor& all, std::int64_t rows) {
  Shape shape = all.shape();
  shape[0] = rows;
  return all.view_as_strided(shape, all.strides(), 0);
}

Classifier::Classifier(nn::Module& model, std::int64_t classes, double smoothing, Tensor class_weights)
    : model_(model), classes_(classes), smoothing_(smoothing), class_weights_(std::move(class_weights)) {
  network("", model);
}

Tensor Classifier::training_step(const Batch& batch, Step& step) {
  const Tensor logits = model_(batch["image"]);
  ATH_CHECK(logits.shape() == (Shape{batch.size(), classes_}),
            "trainer: the model must return logits {}, but got {}", (Shape{batch.size(), classes_}),
            logits.shape());
  CrossEntropy loss = training_loss(logits, batch.labels);
  if (batch.partner_labels.defined()) {
    const CrossEntropy partners = training_loss(logits, batch.partner_labels);
    loss = {mix_by_share(batch, loss.mean, partners.mean), mix_by_share(batch, loss.losses, partners.losses)};
  }
  // Not from the batch mean: f32 means weighted by ranks' shares differ from a single rank's mean.
  step.log_classes(loss.losses, logits, main_labels(batch));
  return loss.mean;
}

CrossEntropy Classifier::training_loss(const Tensor& logits, const Tensor& labels) const {
  if (!class_weights_.defined()) return cross_entropy_of_each(logits, labels, smoothing_);
  const Tensor losses =
      cross_entropy(logits, labels, smoothing_, Reduction::none) * index_select(class_weights_, 0, labels);
  return {mean(losses), losses.detach()};
}

void Classifier::validation_step(const Batch& batch, Step& step) {
  const Tensor logits = model_(batch["image"]);
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
