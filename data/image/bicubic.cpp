#include "data/image/detail/bicubic.h"

#include <algorithm>
#include <cmath>

#include "kernels/resize_ops.h"

namespace athanor {
namespace {

constexpr int kBits = 22;

/// The filter at a distance of x pixels from its centre.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

std::uint8_t byte_of(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

}  // namespace

void BicubicResizer::Axis::prepare(const Window& window, std::int64_t count) {
  taps = kernels::taps_of(window);
  first.resize(static_cast<std::size_t>(count));
  weight.resize(static_cast<std::size_t>(count * taps));
  const double per_scale = 1 / std::max(window.scale, 1.0);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = kernels::first_tap(window, taps, i);
    const double centre = window.centre(i);
    const auto height = [&](std::int64_t k) {
      return cubic((static_cast<double>(start + k) - centre + 0.5) * per_scale);
    };
    double total = 0;
    for (std::int64_t k = 0; k < taps; ++k) total += height(k);
    first[static_cast<std::size_t>(i)] = start;
    for (std::int64_t k = 0; k < taps; ++k) {
      const double share = window.covers(i) ? height(k) / total : 0;
      weight[static_cast<std::size_t>(i * taps + k)] =
          static_cast<std::int32_t>(std::lround(share * (1 << kBits)));
    }
  }
}

void BicubicResizer::operator()(const ImageView& image, const Window& rows, const Window& columns,
                                std::int64_t height, std::int64_t width, std::span<std::uint8_t> out) {
  constexpr std::int32_t kHalf = 1 << (kBits - 1);
  rows_.prepare(rows, height);
  columns_.prepare(columns, width);
  const std::int64_t channels = image.channels, values = width * channels;
  const std::int64_t top = rows_.first.front(), bottom = rows_.first.back() + rows_.taps;
  narrow_.resize(static_cast<std::size_t>((bottom - top) * values));
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* const row = image.row(y);
    std::uint8_t* const to = narrow_.data() + (y - top) * values;
    for (std::int64_t i = 0; i < values; ++i) {
      const std::int64_t x = i / channels;
      const std::uint8_t* const from =
          row + columns_.first[static_cast<std::size_t>(x)] * channels + i % channels;
      const std::int32_t* const weight = columns_.weight.data() + x * columns_.taps;
      std::int32_t sum = kHalf;
      for (std::int64_t k = 0; k < columns_.taps; ++k) sum += weight[k] * from[k * channels];
      to[i] = byte_of(sum);
    }
  }
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* const from =
        narrow_.data() + (rows_.first[static_cast<std::size_t>(y)] - top) * values;
    const std::int32_t* const weight = rows_.weight.data() + y * rows_.taps;
    for (std::int64_t i = 0; i < values; ++i) {
      std::int32_t sum = kHalf;
      for (std::int64_t k = 0; k < rows_.taps; ++k) sum += weight[k] * from[k * values + i];
      out[static_cast<std::size_t>(y * values + i)] = byte_of(sum);
    }
  }
}

}  // namespace athanor
