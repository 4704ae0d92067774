#pragma once

#include <filesystem>
#include <span>

namespace athanor {

/// CPUs that this process may use at once, at least 1: those of its affinity mask, and no more than the quota
/// of its control groups, rounded up (cpu.max of version 2, cpu.cfs_quota_us of version 1). `root` stands
/// before /proc and /sys.
int usable_cpus(const std::filesystem::path& root = "/");
/// The same, with one CPU of each core: CPUs of a core share its arithmetic units, so a second computing
/// thread there gains little.
int usable_cores(const std::filesystem::path& root = "/");

/// The number of cores that these CPUs belong to.
int cores_of(std::span<const int> cpus, const std::filesystem::path& root = "/");

}  // namespace athanor
