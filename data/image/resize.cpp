#include "data/image/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/error.h"

namespace athanor {
namespace {

/// For each output position: where its source pixels start, and their weights (which sum to 1).
struct Taps {
  std::vector<std::int64_t> first;
  std::vector<float> weight;  // `count` for each output
  std::int64_t count = 0;

  Taps(std::int64_t from, std::int64_t to, double scale, double offset) {
    const double radius = std::max(scale, 1.0);
    count = std::min(from, static_cast<std::int64_t>(std::ceil(radius)) * 2 + 1);
    for (std::int64_t i = 0; i < to; ++i) {
      const double centre = (static_cast<double>(i) + 0.5) * scale + offset;
      const auto low = static_cast<std::int64_t>(std::floor(centre - radius + 0.5));
      first.push_back(std::clamp<std::int64_t>(low, 0, from - count));
      double total = 0;
      std::vector<double> raw(static_cast<std::size_t>(count));
      for (std::size_t k = 0; k < raw.size(); ++k) {
        const double at = static_cast<double>(first.back()) + static_cast<double>(k) + 0.5;
        raw[k] = std::max(0.0, 1.0 - std::abs(at - centre) / radius);
        total += raw[k];
      }
      for (double value : raw) weight.push_back(static_cast<float>(value / total));
    }
  }
};

}  // namespace

void resize_to_cover(const Rgb& image, std::int64_t height, std::int64_t width, std::span<std::uint8_t> out) {
  ATH_CHECK(image.height > 0 && image.width > 0 && std::ssize(out) == height * width * 3,
            "resize: output must have {} bytes, but got {}", height * width * 3, out.size());
  // Source pixels per output pixel; what is left over on the longer side is cut off evenly.
  const double scale = std::min(static_cast<double>(image.height) / static_cast<double>(height),
                                static_cast<double>(image.width) / static_cast<double>(width));
  const double top = (static_cast<double>(image.height) - scale * static_cast<double>(height)) / 2;
  const double left = (static_cast<double>(image.width) - scale * static_cast<double>(width)) / 2;
  const Taps rows(image.height, height, scale, top), columns(image.width, width, scale, left);

  std::vector<float> narrow(
      static_cast<std::size_t>(image.height * width * 3));  // columns done, rows not yet
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* line = image.pixels.data() + y * image.width * 3;
    float* to = narrow.data() + y * width * 3;
    for (std::int64_t x = 0; x < width; ++x) {
      const std::uint8_t* from = line + columns.first[static_cast<std::size_t>(x)] * 3;
      const float* w = columns.weight.data() + x * columns.count;
      for (std::int64_t c = 0; c < 3; ++c) {
        float sum = 0;
        for (std::int64_t k = 0; k < columns.count; ++k) sum += w[k] * from[k * 3 + c];
        to[x * 3 + c] = sum;
      }
    }
  }
  std::vector<float> sum(static_cast<std::size_t>(width * 3));
  for (std::int64_t y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.5f);  // rounds
    const float* w = rows.weight.data() + y * rows.count;
    for (std::int64_t k = 0; k < rows.count; ++k) {
      const float* from = narrow.data() + (rows.first[static_cast<std::size_t>(y)] + k) * width * 3;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += w[k] * from[i];
    }
    std::uint8_t* to = out.data() + y * width * 3;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      to[i] = static_cast<std::uint8_t>(std::clamp(sum[i], 0.0f, 255.0f));
    }
  }
}

}  // namespace athanor
