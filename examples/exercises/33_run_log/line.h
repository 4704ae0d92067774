#pragma once

#include <cstdio>
#include <optional>
#include <string>

struct Entry {
  long step = 0;
  double loss = 0;
  bool operator==(const Entry&) const = default;
};

/// A line without its newline; nothing if it is not of the form {"step":N,"loss":X}.
inline std::optional<Entry> parse(const std::string& line) {
  Entry entry;
  int end = 0;
  if (std::sscanf(line.c_str(), "{\"step\":%ld,\"loss\":%lf}%n", &entry.step, &entry.loss, &end) != 2)
    return std::nullopt;
  if (end != static_cast<int>(line.size())) return std::nullopt;
  return entry;
}
