#include "kernels/rand_augment.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

constexpr std::int64_t kMaxChannels = 3;

/// RandPixels::blurred() of all: each row's sums are made once.
void blur_image(const RandChange& change, const RandImage& image, std::uint8_t* out) {
  const std::int64_t channels = image.channels, values = image.width * channels;
  const std::int64_t radius = change.blur_radius;
  const Scratch memory(static_cast<std::size_t>(image.height * values) * sizeof(std::int32_t), kCpu);
  auto* const narrow = memory.as<std::int32_t>();
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* const row = image.pixel(y, 0);
    std::int32_t* const to = narrow + y * values;
    std::fill_n(to, values, 0);
    for (std::int64_t dx = -radius; dx <= radius; ++dx) {
      const std::int32_t weight = change.blur[std::abs(dx)];
      for (std::int64_t x = 0; x < image.width; ++x) {
        const std::int64_t from = padded_index(x + dx, image.width, Padding::reflect) * channels;
        for (std::int64_t c = 0; c < channels; ++c) to[x * channels + c] += weight * row[from + c];
      }
    }
  }
  const Scratch of_row(static_cast<std::size_t>(values) * sizeof(std::int64_t), kCpu);
  auto* const sums = of_row.as<std::int64_t>();
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::fill_n(sums, values, 0);
    for (std::int64_t dy = -radius; dy <= radius; ++dy) {
      const std::int64_t weight = change.blur[std::abs(dy)];
      const std::int32_t* const row = narrow + padded_index(y + dy, image.height, Padding::reflect) * values;
      for (std::int64_t i = 0; i < values; ++i) sums[i] += weight * row[i];
    }
    for (std::int64_t i = 0; i < values; ++i) *out++ = rounded_blur(sums[i]);
  }
}

void change_image(const RandChange& change, const RandImage& image, std::uint8_t* out) {
  if (change.op == RandOp::blur) return blur_image(change, image, out);
  const std::int64_t pixels = image.height * image.width, channels = image.channels;
  std::array<std::int32_t, kMaxChannels * 256> histogram{};
  std::array<std::uint8_t, kMaxChannels * 256> table{};
  const bool of_luma = change.op == RandOp::contrast;
  for (std::int64_t i = 0; change.counts() && i < pixels; ++i) {
    const std::uint8_t* const pixel = image.bytes + i * channels;
    if (of_luma) ++histogram[static_cast<std::size_t>(luma(pixel, channels))];
    for (std::int64_t c = 0; !of_luma && c < channels; ++c)
      ++histogram[static_cast<std::size_t>(c * 256 + pixel[c])];
  }
  for (std::int64_t c = 0; c < channels; ++c)
    fill_table(change, histogram.data() + (of_luma ? 0 : c * 256), table.data() + c * 256);
  const RandPixels result{change, table.data(), image};
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      for (std::int64_t c = 0; c < channels; ++c) *out++ = result(y, x, c);
    }
  }
}

}  // namespace

void rand_augment(CpuContext& context, const RandPass& pass, const AugmentKey& key, const Tensor& images,
                  const Tensor& rows, const Tensor& samples, Out y) {
  const std::int64_t height = y.shape()[1], width = y.shape()[2], channels = y.shape()[3];
  const std::int64_t numel = height * width * channels;
  const std::int64_t* const row_of = rows.defined() ? rows.data<std::int64_t>() : nullptr;
  const std::int64_t grain = cpu::grain_of(numel, cpu::kGrain / 8);
  cpu::for_each_task<false>(context, y.shape()[0], grain, [&](std::int64_t n) {
    const RandChange change = draw_change(pass, height, width, key, samples.data<std::int64_t>()[n]);
    const std::uint8_t* const bytes = images.data<std::uint8_t>() + (row_of ? row_of[n] : n) * numel;
    change_image(change, {bytes, height, width, channels}, y.data<std::uint8_t>() + n * numel);
  });
}

}  // namespace athanor::kernels
