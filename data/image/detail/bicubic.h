#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/image/image.h"
#include "kernels/resize.h"

namespace athanor {

/// Scales images of bytes, bicubic and antialiased, to Pillow's bytes: weights of 22 fractional bits, first
/// along rows, whose results are bytes again, then along columns. For one thread at a time.
/// Source: Keys 1981, equation 15.
class BicubicResizer {
 public:
  /// As Resizer does, which checks its arguments.
  void operator()(const ImageView& image, const Window& rows, const Window& columns, std::int64_t height,
                  std::int64_t width, std::span<std::uint8_t> out);

 private:
  /// For each pixel of the result: the first of its `taps` source pixels, and their weights; 0 for padding.
  struct Axis {
    std::int64_t taps = 0;
    std::vector<std::int64_t> first;
    std::vector<std::int32_t> weight;  // [count, taps]

    void prepare(const Window& window, std::int64_t count);
  };

  Axis rows_, columns_;
  std::vector<std::uint8_t> narrow_;  // [rows of the source in use, values]: rows of the result's width
};

}  // namespace athanor
