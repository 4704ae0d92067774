#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// Several stores, one after the other, as one: the shards of a set. At least one. Its classes are the
/// largest of theirs; throws ArgumentError where two name their classes differently.
std::unique_ptr<Dataset> join(std::vector<std::unique_ptr<Dataset>> parts);

}  // namespace athanor
