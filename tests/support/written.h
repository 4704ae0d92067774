#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

// What a run has written: to a stream, and to its metrics.jsonl.

namespace athanor::test {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The text that `print` writes.
inline std::string printed(const std::function<void(std::FILE*)>& print) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  print(out);
  std::fclose(out);
  const std::string all(text, size);
  std::free(text);  // NOLINT: open_memstream's contract
  return all;
}

/// The objects of a file of JSON lines: those of `event`, or all.
inline std::vector<nlohmann::ordered_json> json_lines(const std::filesystem::path& file,
                                                      const std::string& event = {}) {
  std::vector<nlohmann::ordered_json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
    if (!event.empty() && lines.back().at("event") != event) lines.pop_back();
  }
  return lines;
}

}  // namespace athanor::test
