#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace athanor {

/// SHA-256 of all bytes given to add(). Source: FIPS 180-4.
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// Ends the message.
  std::array<std::byte, 32> digest();

 private:
  void take(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_;
  std::uint64_t bytes_ = 0;
};

/// Message authentication code HMAC-SHA-256. Source: RFC 2104; FIPS 198-1.
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

}  // namespace athanor
