#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// Concatenates several stores, such as the shards of a set; at least one. The number of classes is the
/// largest of theirs. `beside`: Dataset::unused() besides theirs. Throws ArgumentError if two have different
/// class names or fields.
std::unique_ptr<Dataset> join(std::vector<std::shared_ptr<const Dataset>> parts, std::vector<Unused> beside);
std::unique_ptr<Dataset> join(std::vector<std::unique_ptr<Dataset>> parts);

/// What Dataset::unused() tells of a damaged file, of which so much cannot be read: "3 samples".
Unused damaged_file(const std::string& file, const std::string& lost);
/// A set like `like` of one sample that cannot be read: fetch() throws IoError with the reason, and label()
/// is 0. It stands for the samples of a damaged file, of which nobody knows how many they are, so that it is
/// replaced, listed or an error as --bad-samples says.
/// `unused`: its damaged_file().
std::unique_ptr<Dataset> unreadable_sample(const Dataset& like, std::string why, Unused unused);
/// `store` with such a sample at its end; itself if there is no reason.
std::unique_ptr<Dataset> with_unreadable(std::unique_ptr<Dataset> store, const std::string& why,
                                         const Unused& unused);

}  // namespace athanor
