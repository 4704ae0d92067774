#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace athanor::detail {

/// Makes `pixels` hold at least `bytes`. Earlier ones are lost if it grows: both never take memory at once.
inline void make_room(std::vector<std::uint8_t>& pixels, std::size_t bytes) {
  if (pixels.size() >= bytes) return;
  pixels = {};
  pixels.resize(bytes);
}

}  // namespace athanor::detail
