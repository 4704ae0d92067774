#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace athanor::detail {

/// Converts RGBA to RGB in place: blends transparent pixels over white.
inline void lay_over_white(std::span<std::uint8_t> pixels) {
  const std::uint8_t* from = pixels.data();
  std::uint8_t* to = pixels.data();  // never ahead of `from`
  for (std::size_t i = 0; i < pixels.size(); i += 4, from += 4) {
    const int alpha = from[3];
    for (int c = 0; c < 3; ++c)
      *to++ = static_cast<std::uint8_t>((from[c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

}  // namespace athanor::detail
