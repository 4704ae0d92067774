#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "tensor/base/error.h"

// What the fuzzers share. Whatever the bytes are, opening and reading must end in samples or in one IoError
// of one line; any other exception, and whatever the sanitizers find, is a finding.

namespace athanor::fuzz {

/// A folder in memory for the files of this process.
inline const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    std::string pattern = "/dev/shm/athanor-fuzz-XXXXXX";
    if (!mkdtemp(pattern.data())) std::abort();
    static const std::string kept = pattern;
    std::atexit([] { std::filesystem::remove_all(kept); });
    return std::filesystem::path(pattern);
  }();
  return path;
}

inline std::filesystem::path put(const char* name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

/// Files that belong together travel in one input: two bytes that say how long the first is, and so on.
inline std::string join_parts(const std::vector<std::string>& parts) {
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 < parts.size()) {
      joined += static_cast<char>(parts[i].size() & 0xff);
      joined += static_cast<char>(parts[i].size() >> 8);
    }
    joined += parts[i];
  }
  return joined;
}
inline std::vector<std::string_view> split_parts(std::string_view joined, std::size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    std::size_t length = 0;
    if (joined.size() >= 2) {
      length = static_cast<unsigned char>(joined[0]) + 256u * static_cast<unsigned char>(joined[1]);
      joined.remove_prefix(2);
    }
    parts.push_back(joined.substr(0, length));
    joined.remove_prefix(parts.back().size());
  }
  parts.push_back(joined);
  return parts;
}

/// Opens and reads every sample.
inline void read_all(const std::function<std::unique_ptr<Dataset>()>& open) {
  try {
    const std::unique_ptr<Dataset> store = open();
    if (store->size() < 1 || store->spec().classes < 1) std::abort();
    std::vector<std::byte> scratch;
    unsigned sum = 0;
    for (std::int64_t i = 0; i < store->size(); ++i) {
      const StoredSample sample = store->fetch(i, scratch);
      if (sample.bytes.empty() || sample.label < 0 || sample.label >= store->spec().classes) std::abort();
      const bool is_raw = sample.codec == Codec::raw;
      if (is_raw && sample.height * sample.width * sample.channels != std::ssize(sample.bytes)) std::abort();
      sum += std::to_integer<unsigned>(sample.bytes.front()) + std::to_integer<unsigned>(sample.bytes.back());
      (void)store->where(i).size();
    }
    store->will_need(0, store->size());
    sum += static_cast<unsigned>(data_id(*store));
    if (text_of(store->unused()).find('\n') != std::string::npos) std::abort();
    if (sum == 0xdeadbeef) (void)store->size();  // so that no read is left out
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace athanor::fuzz
