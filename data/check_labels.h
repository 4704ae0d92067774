#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "data/label_kind.h"

namespace athanor {

/// The number of elements of the field "labels"; 0 without that field.
std::int64_t label_count(const Dataset& data);

/// Whether a field "labels" of values is in the place of "label".
bool has_several_labels(const Dataset& data);

/// Throws ArgumentError, beginning with `subject`, unless samples have labels of this kind: a label; or a
/// field "labels", f32 [K], of classes with numbers from 0 to 1, of values with finite ones. Reads every one
/// of "labels": throws what reading a sample throws, unless `keeps_going` without those that cannot be read.
void check_labels(const Dataset& data, LabelKind kind, const char* subject, bool keeps_going = false);

}  // namespace athanor
