#pragma once

#include <algorithm>
#include <cstdint>

#include "data/formats/crc32c.h"
#include "kernels/hash.h"

// What Dataset::sample_id() returns.

namespace athanor::detail {

/// Whether a set is so small that each sample may take a system call.
inline bool is_looked_into(std::int64_t samples) {
  return samples <= 50'000;
}

/// First bytes of each stored sample that its id depends on. In all they are at most 256 MiB, which the first
/// epoch then finds in memory.
inline std::int64_t compared_bytes(std::int64_t samples) {
  return (std::int64_t{256} << 20) / std::max<std::int64_t>(samples, 1);
}

}  // namespace athanor::detail
