#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace athanor {

/// Bytes that this process may still allocate before the system or its control group runs out of memory
/// (memory.max of version 2, memory.limit_in_bytes of version 1, of the group and its ancestors). Reclaimable
/// file cache counts as free. Empty if /proc does not tell. `root` is the prefix of /proc and /sys.
std::optional<std::int64_t> free_memory(const std::filesystem::path& root = "/");

}  // namespace athanor
