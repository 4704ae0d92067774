#pragma once

#include <cstdint>
#include <span>

#include "data/image/jpeg.h"

namespace athanor {

/// Scales `image` with its proportions kept until it covers height x width, and writes the middle of that
/// size to `out` (height * width * 3 bytes). Filtered by a triangle as wide as the source pixels an output
/// pixel covers, so that shrinking does not alias; separable, f32.
void resize_to_cover(const Rgb& image, std::int64_t height, std::int64_t width, std::span<std::uint8_t> out);

}  // namespace athanor
