#pragma once

#include <cstddef>
#include <vector>

namespace athanor {

/// Memory for the small objects that every step creates and drops: tensor handles, storages, graph nodes.
/// Freed blocks stay on a list of the freeing thread, so a step after warm-up makes no system request. Sizes
/// over kMaxPooledBytes use the global operator new.
inline constexpr std::size_t kMaxPooledBytes = 1024;

/// A block of that many bytes, and its return; any thread may return it.
void* pool_allocate(std::size_t bytes);
void pool_free(void* block, std::size_t bytes) noexcept;

/// Standard containers on that memory, for the few lists of unknown length in a step.
template <class T> struct PoolAllocator {
  using value_type = T;

  PoolAllocator() = default;
  template <class U> PoolAllocator(const PoolAllocator<U>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(pool_allocate(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) noexcept { pool_free(block, count * sizeof(T)); }
  bool operator==(const PoolAllocator&) const { return true; }
};
template <class T> using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace athanor
