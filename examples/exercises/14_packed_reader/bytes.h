#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

using Bytes = std::span<const unsigned char>;

/// FNV-1a, 64 bits: any flipped bit changes it.
inline std::uint64_t checksum(Bytes bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

/// The eight bytes from `at`, which must be there: a read outside ends the test.
inline std::uint64_t number_at(Bytes bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < 8)
    throw std::logic_error("a number was read outside the file");
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[at + static_cast<std::uint64_t>(i)];
  return value;
}

/// The `length` bytes from `at`, which must be there.
inline Bytes part_of(Bytes bytes, std::uint64_t at, std::uint64_t length) {
  if (at > bytes.size() || length > bytes.size() - at)
    throw std::logic_error("bytes were read outside the file");
  return bytes.subspan(at, length);
}
