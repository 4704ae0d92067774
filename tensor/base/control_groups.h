#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace athanor {

/// Calls f(folder, version) for each control group of `controller` ("cpu", "memory") that holds this process,
/// and for each group above it: version 1 or 2. `root` stands before /proc and /sys.
void for_each_control_group(const std::filesystem::path& root, std::string_view controller,
                            const std::function<void(const std::filesystem::path&, int)>& f);

}  // namespace athanor
