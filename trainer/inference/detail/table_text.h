#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"

// What tables of results are written with.

namespace athanor::detail {

inline constexpr std::int64_t kClassesShown = 50, kWorstShown = 20;
inline constexpr std::size_t kNameColumns = 24;

/// "98.89 %", or "-".
inline std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.2f} %", 100 * share);
}

/// Left-aligned to a number of columns, or truncated.
inline std::string column(const std::string& text, std::size_t columns) {
  std::string shown = printable(text);
  if (terminal::width_of(shown) > static_cast<int>(columns)) {
    std::size_t end = 0, taken = 0;
    while (taken + 1 < columns) {  // whole code points
      do ++end;
      while (end < shown.size() && (static_cast<unsigned char>(shown[end]) & 0xc0) == 0x80);
      ++taken;
    }
    shown = shown.substr(0, end) + "~";
  }
  return shown + std::string(columns - static_cast<std::size_t>(terminal::width_of(shown)), ' ');
}

/// The width of a column for the names name_of(0), ... of `count` things under the heading "class".
template <class F> std::size_t name_columns(std::int64_t count, const F& name_of) {
  std::size_t widest = 5;
  for (std::int64_t i = 0; i < count; ++i)
    widest = std::max(widest, static_cast<std::size_t>(terminal::width_of(printable(name_of(i)))));
  return std::min(widest, kNameColumns);
}

}  // namespace athanor::detail
