#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace athanor::tool {

/// The files that arguments name, in their order: files themselves; of a folder, all that are called like
/// JPEG, PNG or WebP images, at any depth, sorted; "-": the lines of standard input. Throws IoError where a
/// folder cannot be read.
std::vector<std::filesystem::path> pictures_of(const std::vector<std::string>& arguments);

}  // namespace athanor::tool
