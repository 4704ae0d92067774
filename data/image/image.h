#pragma once

#include <cstdint>

namespace athanor {

/// Of an image, in pixels.
struct ImageSize {
  std::int64_t height = 0, width = 0;

  bool operator==(const ImageSize&) const = default;
};

/// A part of an image, in pixels.
struct Box {
  std::int64_t top = 0, left = 0, height = 0, width = 0;

  bool operator==(const Box&) const = default;
};

/// Whether a nonempty box is inside an image.
inline bool holds(const ImageSize& image, const Box& box) {
  return box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
         box.top + box.height <= image.height && box.left + box.width <= image.width;
}

/// A view of pixels: rows of width * channels bytes, channels last, `stride` bytes apart.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0, width = 0, channels = 0, stride = 0;

  const std::uint8_t* row(std::int64_t y) const { return pixels + y * stride; }
};

/// Images with more pixels are refused, so that a damaged header cannot exhaust memory.
inline constexpr std::int64_t kMaxPixels = 100'000'000;

}  // namespace athanor
