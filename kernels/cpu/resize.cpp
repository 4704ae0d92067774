#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/resize_ops.h"
#include "kernels/scratch.h"

// The reference of the CUDA kernel. Loader threads use the vectorised Resizer (data/image/resize.h).

namespace athanor::kernels {
namespace {

/// For each pixel of the result: its first source pixel, and the weights of its taps.
struct ScaledAxis {
  std::int64_t taps;
  std::int64_t* first;
  std::uint16_t* weight;  // [count, taps]

  void weigh(const Window& window, std::int64_t count) {
    taps = taps_of(window);
    for (std::int64_t i = 0; i < count; ++i) {
      first[i] = first_tap(window, taps, i);
      weigh_taps(window, taps, i, first[i],
                 [&](std::int64_t k, std::uint16_t value) { weight[i * taps + k] = value; });
    }
  }
};

std::uint8_t scaled(const std::uint8_t* from, const StagedImage& image, const ScaledAxis& rows,
                    const ScaledAxis& columns, std::int64_t y, std::int64_t x, std::int64_t c) {
  std::uint16_t sum = second_pass_start(rows.taps);
  for (std::int64_t v = 0; v < rows.taps; ++v) {
    const std::uint8_t* row =
        from + ((rows.first[y] + v) * image.width + columns.first[x]) * image.channels + c;
    std::uint16_t narrow = first_pass_start(columns.taps);
    for (std::int64_t u = 0; u < columns.taps; ++u) {
      const std::uint16_t weight = columns.weight[x * columns.taps + u];
      narrow = static_cast<std::uint16_t>(narrow + weighted_byte(row[u * image.channels], weight));
    }
    sum = static_cast<std::uint16_t>(sum + upper_half(narrow, rows.weight[y * rows.taps + v]));
  }
  return result_byte(image, y, x, sum);
}

}  // namespace

void resize_images(CpuContext& context, const Tensor& images, const Tensor& pixels, Out y) {
  const std::int64_t height = y.shape()[1], width = y.shape()[2], channels = y.shape()[3];
  const std::int64_t longer = std::max(height, width);
  const auto* const image_of = reinterpret_cast<const StagedImage*>(images.data<std::uint8_t>());
  // Two axes for each thread: 8 + 2 kManyTaps bytes a pixel.
  const std::int64_t each = longer * static_cast<std::int64_t>(8 + 2 * kManyTaps);
  cpu::parallel_for(context, y.shape()[0], 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch memory(static_cast<std::size_t>(2 * each), kCpu);
    const auto axis = [&](std::int64_t at) {
      auto* const first = reinterpret_cast<std::int64_t*>(memory.as<std::uint8_t>() + at);
      return ScaledAxis{0, first, reinterpret_cast<std::uint16_t*>(first + longer)};
    };
    ScaledAxis rows = axis(0), columns = axis(each);
    for (std::int64_t n = begin; n < end; ++n) {
      const StagedImage& image = image_of[n];
      if (image.at == StagedImage::kComplete) continue;
      const bool transposed = image.transposed != 0;
      const std::int64_t stored_height = transposed ? width : height,
                         stored_width = transposed ? height : width;
      rows.weigh(image.rows, stored_height);
      columns.weigh(image.columns, stored_width);
      for (std::int64_t i = 0; i < stored_height * stored_width; ++i) {
        const std::int64_t row = i / stored_width, column = i % stored_width;
        const TurnedPixel to = turned_pixel(image, row, column, stored_height, stored_width);
        std::uint8_t* out = y.data<std::uint8_t>() + ((n * height + to.y) * width + to.x) * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          out[c] = scaled(pixels.data<std::uint8_t>() + image.at, image, rows, columns, row, column,
                          image.channels == 1 ? 0 : c);
        }
      }
    }
  });
}

}  // namespace athanor::kernels
