#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

// Accounting shared by all allocators: live bytes, by tag.

namespace athanor::detail {

inline constexpr std::size_t kMaxTags = 64;

/// This thread's allocation tag: an index into the process-wide table of names.
extern constinit thread_local std::uint16_t current_tag;

/// Bytes in live tensors. Guarded by the allocator's lock.
class Usage {
 public:
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
  std::int64_t peak() const { return peak_; }
  void reset_peak() {
    peak_ = current_;
    peak_by_tag_ = by_tag_;
  }

  /// Bytes by tag, without empty tags.
  std::map<std::string, std::int64_t> by_tag() const { return named(by_tag_); }
  /// The peak of each tag.
  std::map<std::string, std::int64_t> peak_by_tag() const { return named(peak_by_tag_); }
  /// "weights 4096, activations 512", largest first; "nothing".
  std::string holders() const;

 private:
  using Bytes = std::array<std::int64_t, kMaxTags>;
  static std::map<std::string, std::int64_t> named(const Bytes& by_tag);

  std::int64_t current_ = 0, peak_ = 0;
  Bytes by_tag_{}, peak_by_tag_{};
};

}  // namespace athanor::detail
