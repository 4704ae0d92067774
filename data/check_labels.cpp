#include "data/check_labels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "data/defects.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {

std::int64_t label_count(const Dataset& data) {
  const std::vector<FieldSpec> fields = data.fields();
  const auto at = std::ranges::find(fields, kLabelsField, &FieldSpec::name);
  return at == fields.end() ? 0 : at->shape.numel();
}

bool has_several_labels(const Dataset& data) {
  bool found = false;
  for (const FieldSpec& field : data.fields()) {
    if (field.name == "label") return false;
    found |= field.name == kLabelsField && field.kind == FieldKind::values;
  }
  return found;
}

void check_labels(const Dataset& data, LabelKind kind, const char* subject, bool keeps_going) {
  const std::vector<FieldSpec> fields = data.fields();
  const char* const wanted = kind == LabelKind::classes ? "label" : kLabelsField;
  const auto at = std::ranges::find(fields, wanted, &FieldSpec::name);
  ATH_CHECK(at != fields.end(), "{}: samples must have a field '{}' for --task {}, but have none{}", subject,
            wanted, name_of(kind), kind == LabelKind::classes ? "" : "; a table (.csv, .jsonl) can have it");
  if (kind == LabelKind::classes) return;
  ATH_CHECK(
      at->kind == FieldKind::values && at->dtype == DType::f32 && at->shape.rank() == 1 && at->shape[0] > 0,
      "{}: the field '{}' must be values f32 [K] for --task {}, but is {} {} {}", subject, wanted,
      name_of(kind), name_of(at->kind), at->dtype, at->shape);
  const std::vector<double> labels = data.numbers(wanted);
  const std::vector<std::string> names = data.class_names();
  const auto columns = static_cast<std::size_t>(at->shape[0]);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double value = labels[i];
    const bool fits = kind == LabelKind::values ? std::isfinite(value) : value >= 0 && value <= 1;
    if (fits) continue;
    const std::size_t c = i % columns;
    const auto sample = static_cast<std::int64_t>(i / columns);
    if (std::isnan(value) && is_unreadable(data, sample, keeps_going)) continue;
    detail::fail<>("{}: '{}' of sample {} ({}) must be {}, but is {}", subject,
                   names.empty() ? fmt::to_string(c) : printable(names[c]), sample,
                   printable(data.where(sample)),
                   kind == LabelKind::values ? "a finite number" : "from 0 to 1", value);
  }
}

}  // namespace athanor
