#pragma once

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

/// Whether a set is so small that sizes of files, and first bytes, are looked up: each takes a system call,
/// or a page of a file.
inline bool is_looked_into(std::int64_t samples) {
  return samples <= 50'000;
}

}  // namespace athanor::detail
