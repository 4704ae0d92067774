#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/dataset.h"

namespace athanor::test {

/// A sample that owns its bytes.
struct OwnedSample {
  std::string bytes;
  Codec codec = Codec::raw;
  std::int64_t height = 0, width = 0, channels = 0, label = 0;

  StoredSample view() const {
    return {std::as_bytes(std::span(bytes)), codec, height, width, channels, label};
  }
};

/// Bytes that no two seeds share.
inline std::string noise(std::size_t count, std::uint64_t seed) {
  std::string bytes(count, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

inline OwnedSample raw_sample(std::int64_t height, std::int64_t width, std::int64_t channels,
                              std::int64_t label, std::uint64_t seed) {
  return {noise(static_cast<std::size_t>(height * width * channels), seed),
          Codec::raw,
          height,
          width,
          channels,
          label};
}

/// Encoded bytes that no decoder would take: what stores and writers pass on without looking.
inline OwnedSample encoded_sample(std::size_t bytes, std::int64_t label, std::uint64_t seed,
                                  Codec codec = Codec::jpeg) {
  return {noise(bytes, seed), codec, 0, 0, 0, label};
}

}  // namespace athanor::test
