#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tensor/allocator.h"

// Accounting shared by all allocators: live bytes, by tag.

namespace athanor::detail {

inline constexpr std::size_t kMaxTags = 64;

/// This thread's allocation tag: an index into the process-wide table of names.
extern constinit thread_local std::uint16_t current_tag;

/// What an allocator has from the system, and what of it is in live tensors. Guarded by the allocator's lock.
class Usage {
 public:
  void grew(std::size_t bytes) {
    held_ += static_cast<std::int64_t>(bytes);
    ++growths_;
  }
  void shrank(std::size_t bytes) { held_ -= static_cast<std::int64_t>(bytes); }
  /// Whether the limit leaves room for so many more bytes.
  bool has_room(std::size_t bytes) const {
    return limit_ == 0 || held_ + static_cast<std::int64_t>(bytes) <= limit_;
  }
  void set_limit(std::size_t bytes) { limit_ = static_cast<std::int64_t>(bytes); }
  std::int64_t limit() const { return limit_; }
  std::int64_t cached() const { return held_ - current_; }

  void charge(std::size_t bytes, std::uint16_t tag) {
    current_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, current_);
    by_tag_[tag] += static_cast<std::int64_t>(bytes);
    peak_by_tag_[tag] = std::max(peak_by_tag_[tag], by_tag_[tag]);
  }
  void release(std::size_t bytes, std::uint16_t tag) {
    current_ -= static_cast<std::int64_t>(bytes);
    by_tag_[tag] -= static_cast<std::int64_t>(bytes);
  }

  std::int64_t current() const { return current_; }
  void reset_peak() {
    peak_ = current_;
    peak_by_tag_ = by_tag_;
  }

  AllocatorStats stats(std::size_t largest_free) const;
  /// "weights 4096, activations 512", largest first; "nothing".
  std::string holders() const;

 private:
  using Bytes = std::array<std::int64_t, kMaxTags>;
  static std::map<std::string, std::int64_t> named(const Bytes& by_tag);

  std::int64_t current_ = 0, peak_ = 0, held_ = 0, growths_ = 0, limit_ = 0;
  Bytes by_tag_{}, peak_by_tag_{};
};

}  // namespace athanor::detail
