#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/in_memory.h"

namespace athanor {

/// MNIST from its four original IDX files in `folder`, plain or .gz (train-images-idx3-ubyte, ...): 28x28
/// grey images of 10 classes. Also reads sets in the same format (Fashion-MNIST, KMNIST), whatever their
/// size. Throws IoError naming file and offset. Source: LeCun, Cortes and Burges, "The MNIST database".
std::unique_ptr<Dataset> open_mnist(const std::filesystem::path& folder, Split split);
/// The same in memory.
std::unique_ptr<InMemoryDataset> mnist(const std::filesystem::path& folder, Split split);

}  // namespace athanor
