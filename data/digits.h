#pragma once

#include <memory>
#include <vector>

#include "data/in_memory.h"

namespace athanor {

/// The part of a data set with a published split.
enum class Split : std::uint8_t { train, test };

/// The UCI handwritten digits: 8x8 grey images of 10 classes, 1,437 for training and 360 for testing,
/// embedded in the library. The split is fixed and stratified: each class's test samples are evenly spaced in
/// the original order. Source: Alpaydin and Kaynak 1998 (data/digits/README.md; CC BY 4.0).
std::unique_ptr<InMemoryDataset> digits(Split split);

}  // namespace athanor
