#include "kernels/rand_augment.h"

#include <array>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

constexpr std::int64_t kMaxChannels = 3;

void change_image(const RandChange& change, const RandImage& image, std::uint8_t* out) {
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

void rand_augment(CpuContext& context, const RandAugment& how, int number, const AugmentKey& key,
                  const Tensor& images, const Tensor& rows, const Tensor& samples, Out y) {
  const std::int64_t height = y.shape()[1], width = y.shape()[2], channels = y.shape()[3];
  const std::int64_t numel = height * width * channels;
  const std::int64_t* const row_of = rows.defined() ? rows.data<std::int64_t>() : nullptr;
  const std::int64_t grain = cpu::grain_of(numel, cpu::kGrain / 8);
  cpu::for_each_task<false>(context, y.shape()[0], grain, [&](std::int64_t n) {
    const RandChange change =
        draw_rand_change(how, number, height, width, key, samples.data<std::int64_t>()[n]);
    const std::uint8_t* const bytes = images.data<std::uint8_t>() + (row_of ? row_of[n] : n) * numel;
    change_image(change, {bytes, height, width, channels}, y.data<std::uint8_t>() + n * numel);
  });
}

}  // namespace athanor::kernels
