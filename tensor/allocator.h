#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tensor/device.h"

namespace athanor {

/// Memory statistics of an allocator, in bytes.
struct AllocatorStats {
  std::int64_t current = 0;       ///< in live tensors
  std::int64_t peak = 0;          ///< highest `current` so far
  std::int64_t cached = 0;        ///< freed by tensors, cached for reuse
  std::int64_t largest_free = 0;  ///< the largest piece of `cached` that one tensor could use
  std::int64_t growths = 0;       ///< requests to the system for more memory; 0 per step after warm-up
  std::map<std::string, std::int64_t> by_tag;       ///< `current`, split by AllocTag
  std::map<std::string, std::int64_t> peak_by_tag;  ///< peak of each tag since reset_peak()

  /// The share of the cache that no single tensor could use: 0 if it is in one piece, or empty.
  double fragmentation() const {
    return cached > 0 ? 1 - static_cast<double>(largest_free) / static_cast<double>(cached) : 0;
  }
};

/// A piece of device memory, with the data needed to free it.
struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;  ///< usable size, at least the requested size
  std::uint16_t tag = 0;
  std::uint32_t index = 0;  ///< for the allocator only
};

/// Allocates device memory and caches freed blocks. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// At least `bytes` bytes, 64-byte aligned; 0 bytes give a null block. On a device, valid for work queued
  /// on the current stream from now on. Throws OutOfMemoryError.
  virtual Block allocate(std::size_t bytes) = 0;
  /// From any thread, at any time; on a device, possibly before the work that uses the block is done.
  virtual void free(const Block& block) noexcept = 0;

  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Limit on live and cached bytes, beyond which allocation fails; 0 removes it.
  virtual void set_limit(std::size_t bytes) = 0;
  /// Returns cached memory to the system: on the CPU, blocks of more than 1 MiB, and the slabs of smaller
  /// ones without a live block; on a device, all segments without a live tensor, a counted wait.
  virtual void trim() = 0;
};

/// The process-wide allocator of a device.
Allocator& allocator_of(Device device);

/// While alive, labels this thread's allocations: "weights", "activations", "gradients", ... `name` must be a
/// string literal.
class AllocTag {
 public:
  explicit AllocTag(const char* name);
  ~AllocTag();
  AllocTag(const AllocTag&) = delete;
  AllocTag& operator=(const AllocTag&) = delete;

 private:
  std::uint16_t saved_;
};

}  // namespace athanor
