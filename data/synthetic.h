#pragma once

#include <cstdint>
#include <memory>

#include "data/in_memory.h"

namespace athanor {

/// Synthetic images that can be learned: each class has a random pattern, and each image is its class's
/// pattern with noise. Depends only on its arguments. For trying a model or measuring a step without data.
/// `noise` in [0, 1]: the share of noise in a pixel.
std::unique_ptr<InMemoryDataset> synthetic(const ImageSpec& spec, std::int64_t size, std::uint64_t seed = 0,
                                           double noise = 0.5);

}  // namespace athanor
