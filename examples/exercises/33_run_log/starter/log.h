#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "line.h"

inline std::vector<Entry> read(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (const auto entry = parse(line)) entries.push_back(*entry);
  return entries;
}

inline std::string kept(const std::string& text, long checkpoint_step) {
  (void)checkpoint_step;
  return text;
}
