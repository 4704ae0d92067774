#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// Writes recipe.toml into a run's folder: what --recipe reads to train the same way again. It holds the
/// flags that were given, and those of the recipe as they were; not where things lie. Throws IoError.
void write_recipe(const std::filesystem::path& run_dir, const TrainerConfig& config);

/// A flag that a recipe sets, and its values: of a switch "true" or "false".
struct RecipeFlag {
  std::string name;  ///< "--lr"
  std::vector<std::string> values;
};
/// Throws ArgumentError where the file cannot be read, or is no list of NAME = VALUE.
std::vector<RecipeFlag> read_recipe(const std::filesystem::path& file);

}  // namespace athanor
