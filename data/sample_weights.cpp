#include "data/sample_weights.h"

#include <algorithm>
#include <cmath>

#include "data/defects.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {

std::vector<std::int64_t> class_sizes(const Dataset& data, const char* subject) {
  const std::int64_t classes = data.spec().classes;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const std::int64_t label = data.label(i);
    ATH_CHECK(label >= 0 && label < classes, "{}: the label of image {} must be in [0, {}), but is {}",
              subject, i, classes, label);
    ++sizes[static_cast<std::size_t>(label)];
  }
  return sizes;
}

std::vector<double> balanced_sample_weights(const Dataset& data) {
  bool has_labels = false;
  for (const FieldSpec& field : data.fields()) has_labels |= field.name == "label";
  ATH_CHECK(has_labels, "--sampler balanced: each sample must have a class, but samples have no label");
  const std::vector<std::int64_t> sizes = class_sizes(data, "--sampler balanced");
  std::vector<double> weights;
  weights.reserve(static_cast<std::size_t>(data.size()));
  for (std::int64_t i = 0; i < data.size(); ++i)
    weights.push_back(1 / static_cast<double>(sizes[static_cast<std::size_t>(data.label(i))]));
  return weights;
}

std::vector<double> stored_sample_weights(const Dataset& data, const char* subject, bool keeps_going) {
  const std::vector<FieldSpec> fields = data.fields();
  const auto at = std::ranges::find(fields, kWeightField, &FieldSpec::name);
  ATH_CHECK(at != fields.end(),
            "{}: samples must have a field '{}', such as a column of a table, but have none", subject,
            kWeightField);
  ATH_CHECK(at->kind == FieldKind::values && at->shape.numel() == 1,
            "{}: the field '{}' must be one number, but is {} {} ({})", subject, kWeightField,
            name_of(at->dtype), at->shape, name_of(at->kind));
  std::vector<double> weights = data.numbers(kWeightField);
  std::vector<std::size_t> unreadable;
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(i);
    if (std::isnan(weights[i]) && is_unreadable(data, sample, keeps_going)) {
      unreadable.push_back(i);
      continue;
    }
    ATH_CHECK(std::isfinite(weights[i]) && weights[i] >= 0,
              "{}: a weight must be a finite number of at least 0, but that of sample {} ({}) is {}", subject,
              i, printable(data.where(sample)), weights[i]);
    sum += weights[i];
  }
  const auto read = static_cast<double>(weights.size() - unreadable.size());
  for (const std::size_t i : unreadable) weights[i] = sum / std::max(read, 1.0);
  return weights;
}

}  // namespace athanor
