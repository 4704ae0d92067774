#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace athanor {

/// The likeliest candidate for a misspelt `name`: the one fewest edits away, at most one for every five
/// letters, or one that begins or ends with it; nullopt if all are too far. Case, and '_' or '-', make no
/// difference. Ties go to the earlier candidate.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean 'conv1.weight'?", or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace athanor
