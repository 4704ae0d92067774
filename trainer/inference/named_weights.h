#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace athanor {

/// What was given as weights: a path, or a name of nn/models/weights.txt.
struct NamedWeights {
  std::filesystem::path path;
  std::string model;  ///< of a name, its network; of a path empty
};

/// Where the weights are that a user means: at a path, if there is something. Else `given` may be a name, as
/// "resnet50" or "resnet50.imagenet1k_v1", or "imagenet", which is the name of `model`; these are files in
/// the cache folder athanor/weights, where scripts/get_weights.sh puts them. `model` may be empty: any.
/// Throws ArgumentError, beginning with `who`, if there is neither, if they are of another network than
/// `model`, and if they are not in the cache: then with the command that gets them.
NamedWeights find_weights(const std::filesystem::path& given, std::string_view model, std::string_view who);

}  // namespace athanor
