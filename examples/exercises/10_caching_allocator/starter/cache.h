#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "device.h"

class Cache {
 public:
  explicit Cache(Device& device) : device_(device) {}

  std::int64_t allocate(std::int64_t bytes, int stream) {
    (void)stream;
    const std::int64_t block = device_.allocate(bytes);
    if (block == 0) throw std::bad_alloc();
    return block;
  }
  void release(std::int64_t block, int stream) {
    (void)stream;
    device_.free(block);
  }

 private:
  Device& device_;
};
