#pragma once

#include <cstddef>

#include "tensor/allocator.h"
#include "tensor/device.h"

namespace athanor {

/// Temporary memory of a kernel, freed at the end of the scope.
class Scratch {
 public:
  Scratch(std::size_t bytes, Device device) : block_(allocator_of(device).allocate(bytes)), device_(device) {}
  ~Scratch() { allocator_of(device_).free(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T> T* as() const { return static_cast<T*>(block_.data); }

 private:
  Block block_;
  Device device_;
};

}  // namespace athanor
