#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// Writes RUN/split.safetensors: Dataset::sample_id() of each sample of a run whose validation set was drawn
/// from its data. Throws IoError.
void save_split(const std::filesystem::path& run_dir, const Dataset& train, const Dataset& held_out);

/// Whether the run's folder has that file.
bool has_split(const std::filesystem::path& run_dir);

/// What a data set holds of a run's validation set.
struct FoundSplit {
  std::vector<std::int64_t> held_out;  ///< indices of samples that the run validated on
  std::vector<std::int64_t> added;     ///< of samples that it did not have, or that have changed since
  std::int64_t missing = 0;            ///< validation samples that are gone, or have changed since
};

/// nullopt if the run's folder has no such file. Throws IoError.
std::optional<FoundSplit> find_split(const std::filesystem::path& run_dir, const Dataset& data);

}  // namespace athanor
