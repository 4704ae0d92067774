#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// Concatenates several stores, such as the shards of a set; at least one. The number of classes is the
/// largest of theirs. Throws ArgumentError if two have different class names.
std::unique_ptr<Dataset> join(std::vector<std::unique_ptr<Dataset>> parts);

}  // namespace athanor
