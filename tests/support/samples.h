#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace athanor::test {

/// A sample that owns its bytes.
struct OwnedSample {
  std::vector<std::byte> bytes;
  Codec codec = Codec::raw;
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t label = 0;

  StoredSample view() const { return {bytes, codec, height, width, channels, label}; }
};

/// Bytes that no two seeds share.
inline std::vector<std::byte> noise(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
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
