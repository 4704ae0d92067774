#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::test {

/// All files in a folder and the folders in it, by their paths from there, sorted.
inline std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(std::filesystem::relative(entry.path(), folder).string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace athanor::test
