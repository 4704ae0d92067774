#include "tensor/base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "tensor/base/control_groups.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// The number behind `name` in lines of "name number"; nothing where there is none.
std::optional<std::int64_t> field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (std::int64_t value = 0; word == name && in >> value) return value;
    in.clear();
  }
  return std::nullopt;
}

/// A file of one number; "max" is none.
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

}  // namespace

std::optional<std::int64_t> free_memory(const fs::path& root) {
  const auto available = field(root / "proc/meminfo", "MemAvailable:");
  if (!available) return std::nullopt;
  std::int64_t free = *available * 1024;
  for_each_control_group(root, "memory", [&](const fs::path& folder, int version) {
    const Names& names = version == 2 ? kVersion2 : kVersion1;
    const auto limit = number(folder / names.limit), used = number(folder / names.used);
    if (limit && used)
      free = std::min(free, *limit - *used + field(folder / "memory.stat", names.files).value_or(0));
  });
  return std::max<std::int64_t>(free, 0);
}

}  // namespace athanor
