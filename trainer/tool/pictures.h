#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace athanor::tool {

/// The files named by arguments, in order: files themselves; for a folder, all files named like JPEG, PNG or
/// WebP images, at any depth, sorted; for "-", the lines of standard input. Throws IoError if a folder cannot
/// be read.
std::vector<std::filesystem::path> pictures_of(const std::vector<std::string>& arguments);

}  // namespace athanor::tool
