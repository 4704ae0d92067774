#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace athanor {

/// Bytes that this process may still take before the system runs out of memory, or its control group does
/// (memory.max of version 2, memory.limit_in_bytes of version 1, of the group and those above it). What files
/// keep in memory and would give up counts as free. Nothing where /proc does not say. `root` stands before
/// /proc and /sys.
std::optional<std::int64_t> free_memory(const std::filesystem::path& root = "/");

}  // namespace athanor
