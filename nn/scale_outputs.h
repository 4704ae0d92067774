#pragma once

#include <cstdint>
#include <span>

#include "nn/module.h"

namespace athanor::nn {

/// Makes a network return scale * y + mean where it returned y, by its last layer's weights: for a network
/// that learned numbers of mean 0 and deviation 1. The last layer must be linear, with a bias and without an
/// activation, and have a number in `mean` and `scale` for each output. Throws ArgumentError otherwise.
void scale_outputs(Module& network, std::span<const double> mean, std::span<const double> scale);

/// Throws ArgumentError unless scale_outputs() can change this network, of so many outputs.
void check_scalable(Module& network, std::int64_t outputs);

}  // namespace athanor::nn
