#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tensor/device.h"

namespace athanor {

/// What an allocator holds, in bytes.
struct AllocatorStats {
  std::int64_t current = 0;       ///< in live tensors
  std::int64_t peak = 0;          ///< highest `current` so far
  std::int64_t cached = 0;        ///< freed by tensors, kept for the next
  std::int64_t largest_free = 0;  ///< the largest piece of `cached` that one tensor could get
  std::int64_t growths = 0;  ///< how often the system was asked for more memory; 0 per step after warm-up
  std::map<std::string, std::int64_t> by_tag;       ///< `current`, split by AllocTag
  std::map<std::string, std::int64_t> peak_by_tag;  ///< the most each tag has held since reset_peak()

  /// What part of the cache no single tensor could get: 0 where it is in one piece, or empty.
  double fragmentation() const {
    return cached > 0 ? 1 - static_cast<double>(largest_free) / static_cast<double>(cached) : 0;
  }
};

/// A piece of device memory and what is needed to give it back.
struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;  ///< usable size, at least what was asked for
  std::uint16_t tag = 0;
  std::uint32_t index = 0;  ///< the allocator's own
};

/// Hands out device memory and takes it back into a cache. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// At least `bytes` bytes, 64-byte aligned; 0 bytes give a null block. On a device, for work queued on the
  /// current stream from now on. Throws OutOfMemoryError.
  virtual Block allocate(std::size_t bytes) = 0;
  /// From any thread, at any time; on a device, before the work that uses the block is done.
  virtual void free(const Block& block) noexcept = 0;

  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Bytes that may be held (live and cached) before allocation fails; 0 lifts the limit.
  virtual void set_limit(std::size_t bytes) = 0;
  /// Gives the cache back to the system. On the CPU, blocks of more than 1 MiB: the slabs of smaller ones
  /// stay. On a device, all that no live tensor shares a piece with; a counted wait.
  virtual void trim() = 0;
};

/// The process-wide allocator of a device.
Allocator& allocator_of(Device device);

/// Names what this thread allocates for, while alive: "weights", "activations", "gradients", ...
/// `name` must be a string literal.
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
