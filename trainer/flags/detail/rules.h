#pragma once

#include <functional>
#include <string>

#include "trainer/config.h"

/// Rules between settings: what one needs, excludes or implies. Those that hold for any config are in
/// check().
namespace athanor::detail {

/// Whether a flag was given, by the user or a recipe.
using IsGiven = std::function<bool(const std::string& name)>;

/// After parsing over `defaults`: sets what flags imply for others. Throws ArgumentError on contradictory
/// flags.
void combine_flags(const IsGiven& given, const TrainerConfig& defaults, TrainerConfig& config);
/// A trial run leaves nothing behind, and a run that answers a question only its answer. Throws ArgumentError
/// on contradictory flags.
void fit_to_trial(const IsGiven& given, TrainerConfig& config);

}  // namespace athanor::detail
