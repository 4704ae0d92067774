#include "trainer/classifier.h"

#include <utility>

#include "autograd/loss.h"
#include "tensor/error.h"

namespace athanor {

Classifier::Classifier(nn::Module& model, Preprocess preprocess, std::int64_t classes, Device device,
                       double smoothing)
    : model_(model),
      preprocess_(std::move(preprocess)),
      classes_(classes),
      device_(device),
      smoothing_(smoothing) {}

Tensor Classifier::training_step(const Batch& batch, Pass& pass) {
  const Tensor images = [&] {
    const auto timed = pass.times.scope(&Times::copy);
    return preprocess_(batch, pass.epoch, true);
  }();
  const AllocTag named("activations");
  const Tensor target = batch.labels.to(device_);
  const Tensor logits = model_(images);
  ATH_CHECK(logits.shape() == (Shape{batch.size(), classes_}),
            "trainer: the model must return logits {}, but got {}", (Shape{batch.size(), classes_}),
            logits.shape());
  const CrossEntropy loss = cross_entropy_of_each(logits, target, smoothing_);
  // Not by way of the batch's mean: f32 means, times what ranks have of a batch, are others than one rank's.
  pass.metrics.add(loss.losses, logits, target);
  return loss.mean;
}

void Classifier::validation_step(const Batch& batch, Pass& pass) {
  const Tensor logits = model_(preprocess_(batch, pass.epoch, false)), target = batch.labels.to(device_);
  pass.metrics.add(cross_entropy(logits, target, 0, Reduction::none), logits, target);
}

}  // namespace athanor
