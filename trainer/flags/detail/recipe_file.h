#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// Writes recipe.toml to a run's folder: input for --recipe to repeat the training. It contains the flags
/// given, and the recipe's flags as used, but no paths. Throws IoError.
void write_recipe(const std::filesystem::path& run_dir, const TrainerConfig& config);

/// A flag of a recipe with its values; a switch has "true" or "false".
struct RecipeFlag {
  std::string name;  ///< "--lr"
  std::vector<std::string> values;
};
/// Throws ArgumentError if the file cannot be read or is not a list of NAME = VALUE.
std::vector<RecipeFlag> read_recipe(const std::filesystem::path& file);

}  // namespace athanor
