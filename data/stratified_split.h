#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "data/dataset.h"

namespace athanor {

/// Divides a data set class by class: {what is trained on, what is validated on}, each in the source's order.
/// Of every class the share `fraction` is drawn by `seed` for validation, rounded, but at least one sample of
/// two or more, and never all. Reads every sample once where a set is no folder of images. Throws
/// ArgumentError where `fraction` is not in (0, 1), or no class has two samples; and what reading throws.
std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> stratified_split(
    std::shared_ptr<const Dataset> source, double fraction, std::uint64_t seed);

}  // namespace athanor
