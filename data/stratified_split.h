#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "data/dataset.h"

namespace athanor {

/// Divides a data set by class: {training part, validation part}, each in the source's order. Draws the share
/// `fraction` of every class by `seed` for validation, rounded, but at least one of two or more samples, and
/// never all. Reads every sample once unless the set is an image folder. Throws ArgumentError if `fraction`
/// is not in (0, 1), or no class has two samples; and what reading throws.
std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> stratified_split(
    std::shared_ptr<const Dataset> source, double fraction, std::uint64_t seed);

}  // namespace athanor
