#include "data/formats/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace athanor {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // the library counts in int
  std::uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kMax));
    // The library takes a non-const pointer but only reads.
    auto* const at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    crc = crc32_iscsi(at, static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

}  // namespace athanor
