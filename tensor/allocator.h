#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tensor/device.h"

namespace athanor {

/// What an allocator holds, in bytes.
struct AllocatorStats {
  std::int64_t current = 0;  ///< in live tensors
  std::int64_t peak = 0;     ///< highest `current` so far
  std::int64_t cached = 0;   ///< freed by tensors, kept for the next
  std::int64_t growths = 0;  ///< how often the system was asked for more memory; 0 per step after warm-up
  std::map<std::string, std::int64_t> by_tag;  ///< `current`, split by AllocTag
};

/// A piece of device memory and what is needed to give it back.
struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;  ///< usable size, at least what was asked for
  std::uint16_t tag = 0;
};

/// Hands out device memory and takes it back into a cache. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// At least `bytes` bytes, 64-byte aligned; 0 bytes give a null block. Throws OutOfMemoryError.
  virtual Block allocate(std::size_t bytes) = 0;
  virtual void free(const Block& block) noexcept = 0;

  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Bytes that may be held (live and cached) before allocation fails; 0 lifts the limit.
  virtual void set_limit(std::size_t bytes) = 0;
  /// Gives cached blocks of more than 1 MiB back to the system; the slabs of smaller ones stay.
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
