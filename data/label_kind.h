#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace athanor {

/// What is known of each image, and so what a network learns to tell, as `--task` names it.
enum class LabelKind : std::uint8_t {
  classes,     ///< one class: the field "label", i64 []
  multilabel,  ///< any number of classes: the field "labels", f32 [K], 1 for each that the image has, else 0
  values,      ///< numbers: the field "labels", f32 [K]
};

/// The field of labels other than a single class: f32 [K], values. The data set's class_names() then name its
/// elements, and spec().classes is K.
inline constexpr char kLabelsField[] = "labels";

/// "classify", "multilabel" or "regression".
constexpr std::string_view name_of(LabelKind kind) {
  switch (kind) {
    case LabelKind::classes: return "classify";
    case LabelKind::multilabel: return "multilabel";
    case LabelKind::values: return "regression";
  }
  return "?";
}

/// The kind of that name, if any.
constexpr std::optional<LabelKind> label_kind_named(std::string_view name) {
  for (const LabelKind kind : {LabelKind::classes, LabelKind::multilabel, LabelKind::values})
    if (name == name_of(kind)) return kind;
  return std::nullopt;
}

}  // namespace athanor
