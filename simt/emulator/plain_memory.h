#pragma once

#include <cstddef>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <vector>

// Containers that call malloc, not operator new: tests count operator new, and the work of a GPU's driver is
// not the program's.

namespace simt {

template <class T> struct MallocAllocator {
  using value_type = T;

  MallocAllocator() = default;
  template <class U> MallocAllocator(const MallocAllocator<U>&) {}

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    if (void* memory = std::malloc(count * sizeof(T))) return static_cast<T*>(memory);
    throw std::bad_alloc();
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const MallocAllocator&) const = default;
};

template <class T> using Vector = std::vector<T, MallocAllocator<T>>;
template <class T> using Deque = std::deque<T, MallocAllocator<T>>;
template <class K, class V> using Map = std::map<K, V, std::less<K>, MallocAllocator<std::pair<const K, V>>>;

}  // namespace simt
