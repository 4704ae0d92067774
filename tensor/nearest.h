#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace athanor {

/// The candidate a misspelt `name` most likely meant: the one fewest edits away (Levenshtein, or a name that
/// holds it whole), nothing where all are too far. Ties go to the earlier candidate.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean 'conv1.weight'?", or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace athanor
