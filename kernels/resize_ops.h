#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/resize.h"

// Scaling by triangles, bilinear and antialiased, or to the nearest pixel, along one axis after the other;
// written once for every backend. Bicubic has negative weights, and data/image/detail/bicubic.h.
//
// Fixed point throughout. A byte v enters as v * 256 and is multiplied by weights that sum to 65535 / 65536;
// the upper halves of the products are summed. So both passes have eight fractional bits, sums stay below
// 65536, and each product costs one instruction for 16 values. Truncation loses half of the last bit per
// product on average, so the sum of n starts with n / 2. The result adds 128 to round, and 1 for what the
// weights of two passes lack.

namespace athanor::kernels {

/// With more taps, truncation errors add up and may differ from the compensated half: the CPU then sums all
/// bits. Such images shrink 64 times or more.
inline constexpr std::int64_t kManyTaps = 128;

/// How far from its centre a pixel of the result reaches in the source; nearest: to the pixel it is in.
ATH_HD inline double reach_of(const Window& window) {
  if (window.interpolation == Resampling::nearest) return 0.5;
  return std::max(window.scale, 1.0) * (window.interpolation == Resampling::bicubic ? 2 : 1);
}

/// Number of source pixels of each pixel of the result.
ATH_HD inline std::int64_t taps_of(const Window& window) {
  const auto most = static_cast<std::int64_t>(std::ceil(2 * reach_of(window)));
  return std::min(most, window.high - window.low);
}

/// The first source pixel of pixel i.
ATH_HD inline std::int64_t first_tap(const Window& window, std::int64_t taps, std::int64_t i) {
  const double centre = window.centre(i);
  const auto low = static_cast<std::int64_t>(std::floor(centre - reach_of(window) + 0.5));
  return std::max(window.low, std::min(low, window.high - taps));
}

/// Calls store(k, weight) for each tap of pixel i, from `first` on. Weights sum to 65535, those of padding
/// to 0.
template <class F>
ATH_HD void weigh_taps(const Window& window, std::int64_t taps, std::int64_t i, std::int64_t first,
                       const F& store) {
  if (taps == 1) return store(0, static_cast<std::uint16_t>(window.covers(i) ? 65535 : 0));
  const double per_radius = 1 / std::max(window.scale, 1.0);
  const double centre = window.centre(i);
  const auto height = [&](std::int64_t k) {
    const double share = 1 - std::fabs(static_cast<double>(first + k) + 0.5 - centre) * per_radius;
    return share > 0.0 ? share : 0.0;
  };
  double total = 0;
  for (std::int64_t k = 0; k < taps; ++k) total += height(k);
  // Rounds running sums instead of weights, so that the total is exact.
  const double unit = window.covers(i) ? 65535 / total : 0;
  double sum = 0;
  std::int32_t before = 0;
  for (std::int64_t k = 0; k < taps; ++k) {
    sum += height(k);
    const auto now = static_cast<std::int32_t>(std::floor(sum * unit + 0.5));
    store(k, static_cast<std::uint16_t>(now - before));
    before = now;
  }
}

ATH_HD inline std::uint16_t upper_half(std::uint16_t a, std::uint16_t b) {
  return static_cast<std::uint16_t>((std::uint32_t{a} * b) >> 16);
}
/// A source byte's share in a value of the first pass.
ATH_HD inline std::uint16_t weighted_byte(std::uint8_t byte, std::uint16_t weight) {
  return upper_half(static_cast<std::uint16_t>(byte << 8), weight);
}
/// What a sum of the first and of the second pass begins with.
ATH_HD inline std::uint16_t first_pass_start(std::int64_t taps) {
  return static_cast<std::uint16_t>(taps / 2);
}
ATH_HD inline std::uint16_t second_pass_start(std::int64_t taps) {
  return static_cast<std::uint16_t>(129 + taps / 2);
}

/// A value of a stored result from the sum of its second pass.
ATH_HD inline std::uint8_t result_byte(const StagedImage& image, std::int64_t row, std::int64_t column,
                                       std::uint16_t sum) {
  const bool has_source = image.rows.covers(row) && image.columns.covers(column);
  return static_cast<std::uint8_t>(has_source ? sum >> 8 : image.padding);
}

/// A pixel of the turned result.
struct TurnedPixel {
  std::int64_t y, x;
};
/// Where pixel (row, column) of a stored result of height x width goes.
ATH_HD inline TurnedPixel turned_pixel(const StagedImage& image, std::int64_t row, std::int64_t column,
                                       std::int64_t height, std::int64_t width) {
  if (image.rows_flipped != 0) row = height - 1 - row;
  if (image.columns_flipped != 0) column = width - 1 - column;
  return image.transposed != 0 ? TurnedPixel{column, row} : TurnedPixel{row, column};
}

}  // namespace athanor::kernels
