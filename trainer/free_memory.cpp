#include "trainer/free_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// The number after `name` in lines of "name number"; nullopt if missing.
std::optional<std::int64_t> field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (std::int64_t value = 0; word == name && in >> value) return value;
    in.clear();
  }
  return std::nullopt;
}

/// A file with one number; nullopt for "max".
std::optional<std::int64_t> number(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

struct Names {
  const char *limit, *used, *files;
};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file"};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

/// The memory left by the group and its ancestors.
std::optional<std::int64_t> left_by(const fs::path& mount, const fs::path& group, const Names& names) {
  std::optional<std::int64_t> least;
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    const fs::path folder = at.empty() ? mount : mount / at;
    const auto limit = number(folder / names.limit), used = number(folder / names.used);
    if (limit && used) {
      const std::int64_t left = *limit - *used + field(folder / "memory.stat", names.files).value_or(0);
      least = std::min(least.value_or(left), left);
    }
    if (at.empty()) return least;
  }
}

}  // namespace

std::optional<std::int64_t> free_memory(const fs::path& root) {
  const auto available = field(root / "proc/meminfo", "MemAvailable:");
  if (!available) return std::nullopt;
  std::int64_t free = *available * 1024;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", "4:cpu,memory:/job"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path group = line.substr(second + 1), mount = root / "sys/fs/cgroup";
    std::optional<std::int64_t> left;
    if (controllers == ",,") left = left_by(mount, group, kVersion2);
    if (controllers.find(",memory,") != controllers.npos) left = left_by(mount / "memory", group, kVersion1);
    if (left) free = std::min(free, *left);
  }
  return std::max<std::int64_t>(free, 0);
}

}  // namespace athanor
