#pragma once

#include <cstddef>
#include <cstdint>

#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/plain_memory.h"

namespace simt {

struct Allocation {
  char* base = nullptr;
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
  Site site;
  std::uint64_t id = 0;

  bool contains(const void* pointer) const { return pointer >= base && pointer < base + bytes; }
};

/// Memory of the devices, and page-locked memory. What is given back is kept, poisoned, until nobody can
/// reach it late.
class Memory {
 public:
  explicit Memory(int devices) : used_(static_cast<std::size_t>(devices), 0) {}

  /// Throws Failure where there is not enough.
  void* allocate(std::size_t bytes, cudaMemoryType type, int device, const Site& site);
  /// That begins there. Throws Failure where there is none of the type.
  Allocation live(void* memory, cudaMemoryType type) const;
  /// Takes it back.
  void bury(const Allocation& allocation);
  std::size_t buried_bytes() const { return buried_bytes_; }
  /// To the system, what was taken back.
  void empty_graveyard();

  /// Null where the pointer is in no allocation of ours.
  const Allocation* find(const void* pointer) const;
  /// The same, where the pointer may also be the end of an array.
  const Allocation* find_or_end(const char* pointer) const;
  std::size_t bytes_free(int device) const;

 private:
  std::size_t& used(cudaMemoryType type, int device);

  Map<const char*, Allocation> allocations_;
  std::uint64_t made_ = 0;
  Vector<Allocation> buried_;
  std::size_t buried_bytes_ = 0;
  Vector<std::size_t> used_;  // of each device
  std::size_t pinned_used_ = 0;
};

}  // namespace simt
