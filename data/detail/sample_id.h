#pragma once

#include <cstdint>

#include "data/formats/crc32c.h"
#include "kernels/hash.h"

// What Dataset::sample_id() returns.

namespace athanor::detail {

/// Whether a set is so small that sizes of files, and first bytes, are looked up: each takes a system call,
/// or a page of a file.
inline bool is_looked_into(std::int64_t samples) {
  return samples <= 50'000;
}

}  // namespace athanor::detail
