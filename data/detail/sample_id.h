#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/formats/crc32c.h"
#include "kernels/hash.h"

// What Dataset::sample_id() returns.

namespace athanor::detail {

/// Of a sample whose stored bytes are at hand.
inline std::uint64_t id_of(std::span<const std::byte> stored, std::int64_t label) {
  kernels::HashOf hash;
  hash.add(stored.size(), crc32c(stored), label);
  return hash.value();
}

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
