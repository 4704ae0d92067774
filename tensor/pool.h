#pragma once

#include <cstddef>

namespace athanor {

/// Memory for the small objects every step creates and drops: tensor handles, storages, graph nodes.
/// Freed blocks stay on a list of the freeing thread, so a warmed-up step asks the system for nothing.
/// Sizes over kMaxPooledBytes go to the global operator new.
inline constexpr std::size_t kMaxPooledBytes = 1024;

void* pool_allocate(std::size_t bytes);
void pool_free(void* block, std::size_t bytes) noexcept;

}  // namespace athanor
