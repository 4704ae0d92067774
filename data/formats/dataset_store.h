#pragma once

#include <memory>

#include "data/sample_store.h"

namespace athanor {

/// Any data set as a store of raw samples, so that writers take it.
std::unique_ptr<SampleStore> dataset_store(std::shared_ptr<const Dataset> source);

}  // namespace athanor
