#include "tensor/base/cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "tensor/base/control_groups.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// How many CPUs at once the control groups allow; infinity without a quota.
double quota(const fs::path& root) {
  double least = std::numeric_limits<double>::infinity();
  for_each_control_group(root, "cpu", [&](const fs::path& folder, int version) {
    std::ifstream quotas(folder / (version == 2 ? "cpu.max" : "cpu.cfs_quota_us"));
    std::ifstream periods(folder / "cpu.cfs_period_us");
    double quota = 0, period = 0;  // in us; "max" and -1 are none
    if (quotas >> quota && (version == 2 ? quotas : periods) >> period && quota > 0 && period > 0)
      least = std::min(least, quota / period);
  });
  return least;
}

int within_quota(int count, const fs::path& root) {
  return static_cast<int>(std::max(1.0, std::min<double>(count, std::ceil(quota(root)))));
}

std::vector<int> cpus_of_affinity() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  } else {  // more CPUs than the mask has bits
    for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu)
      cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace

int usable_cpus(const fs::path& root) {
  return within_quota(static_cast<int>(cpus_of_affinity().size()), root);
}

int usable_cores(const fs::path& root) {
  return within_quota(cores_of(cpus_of_affinity(), root), root);
}

int cores_of(std::span<const int> cpus, const fs::path& root) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    std::ifstream in(root / fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    cores.insert(std::getline(in, siblings) ? siblings : fmt::format("cpu {}", cpu));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace athanor
