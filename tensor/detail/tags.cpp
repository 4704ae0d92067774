#include "tensor/detail/tags.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tensor/allocator.h"

namespace athanor {
namespace detail {
namespace {

struct TagTable {
  std::mutex mutex;
  std::array<const char*, kMaxTags> names{"other"};
  std::size_t size = 1;

  std::uint16_t index_of(std::string_view name) {
    std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < size; ++i) {
      if (names[i] == name) return static_cast<std::uint16_t>(i);
    }
    if (size == kMaxTags) return 0;
    names[size] = name.data();
    return static_cast<std::uint16_t>(size++);
  }

  const char* name_of(std::size_t index) {
    std::lock_guard lock(mutex);
    return names[index];
  }
};

TagTable& tags() {
  static TagTable* const table = new TagTable;
  return *table;
}

}  // namespace

constinit thread_local std::uint16_t current_tag = 0;

std::map<std::string, std::int64_t> Usage::named(const Bytes& by_tag) {
  std::map<std::string, std::int64_t> bytes;
  for (std::size_t i = 0; i < kMaxTags; ++i) {
    if (by_tag[i] != 0) bytes[tags().name_of(i)] = by_tag[i];
  }
  return bytes;
}

AllocatorStats Usage::stats(std::size_t largest_free) const {
  return {current_, peak_,          cached(),           static_cast<std::int64_t>(largest_free),
          growths_, named(by_tag_), named(peak_by_tag_)};
}

std::string Usage::holders() const {
  std::vector<std::pair<std::int64_t, std::string>> holders;
  for (const auto& [name, bytes] : named(by_tag_)) holders.emplace_back(bytes, name);
  std::sort(holders.rbegin(), holders.rend());
  std::string text;
  for (const auto& [bytes, name] : holders)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes);
  return text.empty() ? "nothing" : text;
}

}  // namespace detail

AllocTag::AllocTag(const char* name) : saved_(detail::current_tag) {
  detail::current_tag = detail::tags().index_of(name);
}
AllocTag::~AllocTag() {
  detail::current_tag = saved_;
}

}  // namespace athanor
