#include "trainer/regression.h"

#include <algorithm>
#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/check_labels.h"
#include "data/label_kind.h"
#include "tensor/base/error.h"
#include "trainer/inference/model_file.h"
#include "trainer/metrics/number_errors.h"
#include "trainer/outputs.h"

namespace athanor {

ValueScale scale_of_values(const Dataset& data) {
  const std::vector<double> labels = data.numbers(kLabelsField);
  const auto columns = static_cast<std::size_t>(label_count(data));
  const auto unreadable = std::ranges::count_if(labels, [](double label) { return std::isnan(label); });
  const auto count = static_cast<double>(std::ssize(labels) - unreadable) / static_cast<double>(columns);
  ValueScale scale{std::vector<double>(columns), std::vector<double>(columns)};
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (!std::isnan(labels[i])) scale.mean[i % columns] += labels[i];
  for (double& mean : scale.mean) mean /= count;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    const double from_mean = labels[i] - scale.mean[i % columns];
    scale.deviation[i % columns] += from_mean * from_mean;
  }
  for (double& deviation : scale.deviation) deviation = deviation > 0 ? std::sqrt(deviation / count) : 1;
  return scale;
}

Regression::Regression(nn::Module& model, const ValueScale& scale, std::int64_t validated, Device device,
                       const TaskLoss& loss)
    : model_(model),
      scale_(scale),
      mean_(Tensor::from(scale.mean, {std::ssize(scale.mean)}, device)),
      deviation_(Tensor::from(scale.deviation, {std::ssize(scale.deviation)}, device)),
      validated_(validated),
      loss_(loss_for(LabelKind::values, loss)) {
  ATH_CHECK(!scale.mean.empty() && scale.mean.size() == scale.deviation.size(),
            "regression: each value must have a mean and a deviation, but there are {} and {}",
            scale.mean.size(), scale.deviation.size());
  network("", model);
}

// In f64, since values may be large beside their deviation.
Tensor Regression::losses(const Tensor& outputs, const Tensor& targets) const {
  const Tensor normal = (cast(targets, DType::f64) - mean_) / deviation_;
  return loss_of_each(loss_, outputs, cast(normal, outputs.dtype()));
}

Tensor Regression::training_step(const Batch& batch, Step& step) {
  const Tensor outputs = outputs_of(model_, batch, mean_.numel());
  const Tensor each = weighted(loss_, losses(outputs, targets_of(batch, outputs)), batch);
  step.log("loss", mean_of_rows(each).detach(), MetricReduce::exact);
  return mean(each);
}

void Regression::validation_step(const Batch& batch, Step& step) {
  const Tensor outputs = outputs_of(model_, batch, mean_.numel(), views_),
               targets = targets_of(batch, outputs);
  step.log("loss", mean_of_rows(losses(outputs, targets)), MetricReduce::exact);
  step.add("values", NumberErrors(validated_, mean_.numel()), cast(outputs, DType::f64) * deviation_ + mean_,
           targets, batch.samples);
}

void Regression::describe(ModelInfo& info, const Metrics& /*measured*/) const {
  info.task = LabelKind::values;
  info.images.classes = mean_.numel();
  info.output_mean = scale_.mean;
  info.output_scale = scale_.deviation;
}

}  // namespace athanor
