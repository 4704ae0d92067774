#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/in_memory.h"

namespace athanor {

/// CIFAR-10 from its binary version in `folder` (data_batch_1.bin ... data_batch_5.bin, test_batch.bin, plain
/// or .gz): 32x32 RGB images of 10 classes, converted from planes to channels-last. Throws IoError naming
/// file and offset. Source: Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
std::unique_ptr<InMemoryDataset> cifar10(const std::filesystem::path& folder, Split split);
/// CIFAR-100, likewise (train.bin, test.bin), with its 100 fine labels.
std::unique_ptr<InMemoryDataset> cifar100(const std::filesystem::path& folder, Split split);

/// The same records as a store, at least one: `path` is such a file, plain or .gz (in memory), or a
/// folder, from which it takes `split`. `classes` is 10 or 100. Throws IoError.
std::unique_ptr<Dataset> open_cifar(const std::filesystem::path& path, std::int64_t classes,
                                    Split split = Split::train);
}  // namespace athanor
