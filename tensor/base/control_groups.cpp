#include "tensor/base/control_groups.h"

#include <fstream>
#include <string>

#include <fmt/format.h>

namespace athanor {

namespace fs = std::filesystem;

void for_each_control_group(const fs::path& root, std::string_view controller,
                            const std::function<void(const fs::path&, int)>& f) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", "4:cpu,memory:/job"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const int version = controllers == ",," ? 2 : 1;
    if (version == 1 && controllers.find(fmt::format(",{},", controller)) == controllers.npos) continue;
    const fs::path top = version == 2 ? mount : mount / controller;
    for (fs::path at = fs::path(line.substr(second + 1)).relative_path();; at = at.parent_path()) {
      f(at.empty() ? top : top / at, version);
      if (at.empty()) break;
    }
  }
}

}  // namespace athanor
