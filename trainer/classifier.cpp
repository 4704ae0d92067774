#include "trainer/classifier.h"

#include "autograd/loss.h"
#include "tensor/error.h"

namespace athanor {

Classifier::Classifier(nn::Module& model, std::int64_t classes, double smoothing)
    : model_(model), classes_(classes), smoothing_(smoothing) {
  network("", model);
}

Tensor Classifier::training_step(const Batch& batch, Step& step) {
  const Tensor logits = model_(batch["image"]);
  ATH_CHECK(logits.shape() == (Shape{batch.size(), classes_}),
            "trainer: the model must return logits {}, but got {}", (Shape{batch.size(), classes_}),
            logits.shape());
  const CrossEntropy loss = cross_entropy_of_each(logits, batch.labels, smoothing_);
  // Not by way of the batch's mean: f32 means, times what ranks have of a batch, are others than one rank's.
  step.log_classes(loss.losses, logits, batch.labels);
  return loss.mean;
}

void Classifier::validation_step(const Batch& batch, Step& step) {
  const Tensor logits = model_(batch["image"]);
  step.log_classes(cross_entropy(logits, batch.labels, 0, Reduction::none), logits, batch.labels);
}

}  // namespace athanor
