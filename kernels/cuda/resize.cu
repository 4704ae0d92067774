#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/resize_ops.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 16, kColumns = 32;  // pixels of the result that a block makes at a time
constexpr int kMaxChannels = 4;
constexpr int kAtOnce = 16;  // rows of the source that it narrows at a time
constexpr int kOwned = kRows * kColumns * kMaxChannels / kThreads;  // values of the result of a thread

struct Result {
  std::uint8_t* y;
  int height, width, channels;
};

/// Pixels of a stored result.
struct Part {
  int top, left, rows, columns;
};

/// What a block knows of them, in shared memory.
struct Tile {
  int first_row[kRows], first_column[kColumns];
  std::uint16_t row_weight[kRows * kManyTaps];        // [row, tap]
  std::uint16_t column_weight[kManyTaps * kColumns];  // [tap, column]
  std::uint16_t narrow[kAtOnce * kColumns * kMaxChannels];
};

/// First taps and weights, in double as on the CPU: a thread for each row and column.
__device__ __forceinline__ void weigh_tile(Tile& tile, const StagedImage& image, int row_taps,
                                           int column_taps, const Part& part) {
  const int column = static_cast<int>(threadIdx.x), row = column - kColumns;
  if (column < part.columns) {
    const Window& window = image.columns;
    const std::int64_t first = first_tap(window, column_taps, part.left + column);
    tile.first_column[column] = static_cast<int>(first);
    weigh_taps(window, column_taps, part.left + column, first, [&](std::int64_t k, std::uint16_t weight) {
      tile.column_weight[k * kColumns + column] = weight;
    });
  } else if (row >= 0 && row < part.rows) {
    const Window& window = image.rows;
    const std::int64_t first = first_tap(window, row_taps, part.top + row);
    tile.first_row[row] = static_cast<int>(first);
    weigh_taps(window, row_taps, part.top + row, first,
               [&](std::int64_t k, std::uint16_t weight) { tile.row_weight[row * row_taps + k] = weight; });
  }
}

/// Source rows [from, from + count) at the tile's width, with 8 fractional bits.
__device__ __forceinline__ void narrow_rows(Tile& tile, const StagedImage& image, const std::uint8_t* pixels,
                                            int taps, int columns, int from, int count) {
  const int channels = image.channels, values = columns * channels;
  const std::int64_t stride = std::int64_t{image.width} * channels;
  const std::uint8_t* const rows = pixels + image.at + from * stride;
  for (int i = static_cast<int>(threadIdx.x); i < count * values; i += kThreads) {
    const int row = i / values, value = i % values, column = value / channels;
    const std::uint8_t* source =
        rows + row * stride + tile.first_column[column] * channels + value % channels;
    std::uint16_t sum = first_pass_start(taps);
    for (int k = 0; k < taps; ++k) {
      sum = static_cast<std::uint16_t>(
          sum + weighted_byte(source[k * channels], tile.column_weight[k * kColumns + column]));
    }
    tile.narrow[i] = sum;
  }
}

/// Writes a value of the stored result, turned, and for all channels if the image has one.
__device__ __forceinline__ void store_value(const Result& to, const StagedImage& image, std::int64_t n,
                                            int row, int column, int channel, std::uint16_t sum) {
  const int height = image.transposed != 0 ? to.width : to.height;
  const int width = image.transposed != 0 ? to.height : to.width;
  const TurnedPixel at = turned_pixel(image, row, column, height, width);
  std::uint8_t* out = to.y + ((n * to.height + at.y) * to.width + at.x) * to.channels;
  const std::uint8_t byte = result_byte(image, row, column, sum);
  if (image.channels == to.channels) {
    out[channel] = byte;
  } else {
    for (int c = 0; c < to.channels; ++c) out[c] = byte;
  }
}

/// A byte in and a byte out per value, or more in, less out of a larger image. A block takes tile after tile:
/// it narrows rows of the source into shared memory, and each thread adds them to its values of the result.
__global__ void __launch_bounds__(kThreads)
    resize_tiles(const StagedImage* images, const std::uint8_t* pixels, Result to, std::int64_t count,
                 int down, int across) {
  __shared__ Tile tile;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t task = blockIdx.x; task < count * down * across; task += gridDim.x) {
    const std::int64_t n = task / (down * across);
    const int in_image = static_cast<int>(task % (down * across));
    Part part{in_image / across * kRows, in_image % across * kColumns, kRows, kColumns};
    const StagedImage& image = images[n];
    const bool transposed = image.transposed != 0;
    part.rows = std::min(part.rows, (transposed ? to.width : to.height) - part.top);
    part.columns = std::min(part.columns, (transposed ? to.height : to.width) - part.left);
    if (image.at < 0 || part.rows <= 0 || part.columns <= 0) continue;
    const int row_taps = static_cast<int>(taps_of(image.rows)),
              column_taps = static_cast<int>(taps_of(image.columns));
    __syncthreads();  // no thread needs the last tile
    weigh_tile(tile, image, row_taps, column_taps, part);
    __syncthreads();
    const int channels = image.channels, values = part.columns * channels;
    std::uint16_t sum[kOwned];
#pragma unroll
    for (int j = 0; j < kOwned; ++j) sum[j] = second_pass_start(row_taps);
    const int end = tile.first_row[part.rows - 1] + row_taps;
    for (int from = tile.first_row[0]; from < end; from += kAtOnce) {
      const int here = std::min(end - from, int{kAtOnce});
      narrow_rows(tile, image, pixels, column_taps, part.columns, from, here);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kOwned; ++j) {
        const int i = thread + j * kThreads, row = i / values, value = i % values;
        if (row >= part.rows) break;
        const int first = tile.first_row[row];
        const int last = std::min(first + row_taps, from + here);
        for (int r = std::max(first, from); r < last; ++r) {
          sum[j] =
              static_cast<std::uint16_t>(sum[j] + upper_half(tile.narrow[(r - from) * values + value],
                                                             tile.row_weight[row * row_taps + r - first]));
        }
      }
      __syncthreads();  // before the next rows
    }
#pragma unroll
    for (int j = 0; j < kOwned; ++j) {
      const int i = thread + j * kThreads, row = i / values, value = i % values;
      if (row >= part.rows) break;
      store_value(to, image, n, part.top + row, part.left + value / channels, value % channels, sum[j]);
    }
  }
}

}  // namespace

void resize_images(CudaContext& context, const Tensor& images, const Tensor& pixels, Out y) {
  if (y.numel() == 0) return;
  const auto side = [&](int axis) { return static_cast<int>(y.shape()[axis]); };
  const Result to{y.data<std::uint8_t>(), side(1), side(2), side(3)};
  // As many tiles as either way up needs.
  const auto tiles = [&](int each) {
    return std::pair((to.height + each - 1) / each, (to.width + each - 1) / each);
  };
  const auto [rows_down, rows_across] = tiles(kRows);
  const auto [columns_down, columns_across] = tiles(kColumns);
  const int down = std::max(rows_down, rows_across), across = std::max(columns_down, columns_across);
  cuda::launch(context,
               {"resize_images", cuda::blocks_for(context, y.shape()[0] * down * across, 1, 8), kThreads},
               resize_tiles, reinterpret_cast<const StagedImage*>(images.data<std::uint8_t>()),
               pixels.data<std::uint8_t>(), to, y.shape()[0], down, across);
}

}  // namespace athanor::kernels
