#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace athanor {

/// Pixels of the longest side that an image may be scaled to.
inline constexpr std::int64_t kMaxImageSide = 16384;

/// How the pixels of a result lie over those of its source, along one axis: pixel i is centred at
/// (i + 0.5) * scale + offset of the source, and made of source pixels in [low, high) alone.
struct Window {
  double scale = 1, offset = 0;
  std::int64_t low = 0, high = 0;

  bool operator==(const Window&) const = default;
};

/// The source pixels [first, last) that `count` pixels of the result are made of.
struct Reach {
  std::int64_t first = 0, last = 0;
};
Reach reach(const Window& window, std::int64_t count);

/// Scales images of bytes: bilinear, antialiased. A result's pixel is the mean of its source pixels weighted
/// by a triangle max(scale, 1) to each side; where that reaches over the window's ends, by what is left of
/// it. The same as torchvision's resize with antialias=True.
///
/// Within 1 of the exact result, and the same bits everywhere. For one thread at a time; memory and the last
/// weights are kept.
class Resizer {
 public:
  /// Writes height x width pixels of image.channels (1 to 4) to `out`. Windows are in pixels of `image`.
  /// Throws ArgumentError where they reach outside of it, or `out` has another size.
  void operator()(const ImageView& image, const Window& rows, const Window& columns, std::int64_t height,
                  std::int64_t width, std::span<std::uint8_t> out);

 private:
  /// For each pixel of the result: the first of its `taps` source pixels; their weights sum to 65535.
  struct Axis {
    Window window;
    std::int64_t count = 0, taps = 0;
    std::vector<std::int32_t> first;
    std::vector<std::uint16_t> weight;  // [count, taps]

    bool prepare(const Window& wanted, std::int64_t size);
  };
  void prepare_groups(std::int64_t channels);
  const std::uint8_t* readable(const ImageView& image, std::int64_t y);

  Axis rows_, columns_;
  // Values of a row are made eight at a time, from sixteen bytes that lie together.
  std::vector<std::int32_t> group_from_, group_to_;  // first byte read, first value written
  std::vector<std::uint8_t> group_pick_;             // [groups, 16]: the byte each half of a value takes
  std::vector<std::uint16_t> group_weight_;          // [groups / 2, taps, 16]
  std::int64_t channels_ = 0;
  std::vector<std::uint16_t> narrow_;  // [taps of rows_, values and eight more]: rows of the result's width
  std::vector<const std::uint16_t*> tap_rows_;  // the rows of narrow_ that a row of the result needs
  std::vector<std::uint8_t> padded_;            // a row with room behind it
};

}  // namespace athanor
