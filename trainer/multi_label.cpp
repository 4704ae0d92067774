#include "trainer/multi_label.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/check_labels.h"
#include "data/label_kind.h"
#include "tensor/base/error.h"
#include "trainer/classifier.h"
#include "trainer/inference/model_file.h"
#include "trainer/metrics/several_labels.h"
#include "trainer/outputs.h"

namespace athanor {

Tensor positive_weights(const ClassWeights& how, const Dataset& data) {
  if (!how.balanced) return class_weights(how, data);
  const auto classes = static_cast<std::size_t>(label_count(data));
  std::vector<double> with(classes);
  const std::vector<double> labels = data.numbers(kLabelsField);
  const auto unreadable = std::ranges::count_if(labels, [](double label) { return std::isnan(label); });
  const double all = static_cast<double>(std::ssize(labels) - unreadable) /
                     static_cast<double>(std::max<std::size_t>(classes, 1));
  for (std::size_t i = 0; i < labels.size(); ++i) with[i % classes] += labels[i] >= 0.5;
  std::vector<float> weights;
  for (const double images : with)
    weights.push_back(images > 0 ? static_cast<float>((all - images) / images) : 1);
  return Tensor::from(weights, {std::ssize(weights)});
}

MultiLabel::MultiLabel(nn::Module& model, std::int64_t classes, std::int64_t validated,
                       const Options& options)
    : model_(model), classes_(classes), validated_(validated), options_(options) {
  options_.loss = loss_for(LabelKind::multilabel, options.loss);
  ATH_CHECK(!options.pos_weight.defined() || options_.loss.kind == LossKind::bce,
            "--class-weights: with --task multilabel, must be with --loss bce, but the loss is {}",
            name_of(options_.loss.kind));
  network("", model);
}

Tensor MultiLabel::training_step(const Batch& batch, Step& step) {
  const Tensor logits = outputs_of(model_, batch, classes_);
  Tensor target = targets_of(batch, logits);
  if (options_.smoothing > 0) target = affine(target, 1 - options_.smoothing, options_.smoothing / 2);
  const Tensor losses =
      weighted(options_.loss, loss_of_each(options_.loss, logits, target, options_.pos_weight), batch);
  step.log("loss", mean_of_rows(losses).detach(), MetricReduce::exact);
  return mean(losses);
}

void MultiLabel::validation_step(const Batch& batch, Step& step) {
  const Tensor logits = outputs_of(model_, batch, classes_, views_), target = targets_of(batch, logits);
  step.log("loss", mean_of_rows(loss_of_each(options_.loss, logits, target)), MetricReduce::exact);
  step.add("labels", SeveralLabels(validated_, classes_), logits, target, batch.samples);
}

void MultiLabel::describe(ModelInfo& info, const Metrics& measured) const {
  info.task = LabelKind::multilabel;
  info.images.classes = classes_;
  for (std::int64_t c = 0; c < classes_; ++c)
    info.thresholds.push_back(measured.value_of(fmt::format("threshold/{}", c)));
  if (std::isnan(info.thresholds.front())) info.thresholds.clear();  // not measured
}

}  // namespace athanor
