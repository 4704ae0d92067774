#pragma once

#include <cstdint>

#include "autograd.h"

namespace engine {

/// Square filters over the images of one size.
struct Windows {
  std::int64_t channels, height, width, kernel, stride, padding;

  std::int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  /// Of the matrix of patches: numbers that one result needs, and results.
  std::int64_t rows() const { return channels * kernel * kernel; }
  std::int64_t columns() const { return out_height() * out_width(); }
};

/// The patches of one image [channels, height, width] as a matrix [rows, columns]: the row of (c, r, s)
/// holds, for every result (y, x), pixel (c, y stride + r - padding, x stride + s - padding), or 0 outside
/// the image.
void image_to_columns(const Windows& w, const float* image, float* columns);
/// The other way: adds each element of the matrix to the pixel that it was read from.
void columns_to_image(const Windows& w, const float* columns, float* image);

/// The cross-correlation of x [n, c, h, w] with weight [k, c, r, r]: y [n, k, oh, ow], as Conv2d without a
/// bias. Patches are made of one image at a time, and multiplied by `product`. Throws std::invalid_argument
/// where shapes do not fit, the stride is below 1 or the padding below 0.
Variable conv2d(const Variable& x, const Variable& weight, std::int64_t stride, std::int64_t padding);

}  // namespace engine
