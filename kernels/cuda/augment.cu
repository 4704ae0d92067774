#include <algorithm>

#include "kernels/augment.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/divide.h"
#include "kernels/cuda/vec.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4;                // of a multiprocessor at once
constexpr int kTile = 4 * kThreads;       // pixels that a block makes at a time,
constexpr std::int64_t kTileMax = 16384;  // and bytes: of many channels, fewer pixels
constexpr std::size_t kTableMax = 16384;  // bytes of a table that goes to shared memory

struct Batch {
  const std::uint8_t* images;
  const std::int64_t *rows, *samples;  // rows may be null
  std::int64_t count;                  // of samples
  int height, width, channels;
  cuda::Divider by_width, by_channels;
  int tile, tiles;  // pixels, and how many of them an image has
  int parts;        // that these are divided among, a block for each
};

// AugmentPlan, as shared memory holds it.
struct Plan {
  int dy, dx, blank_y, blank_x, blank_y_end, blank_x_end, box_height, box_width;
  bool flip, vertical_flip, recolours;
  ColourMatrix colour;

  __device__ bool blanks_any() const { return blank_y < blank_y_end && blank_x < blank_x_end; }
  __device__ bool blanks(int y, int x) const {
    return y >= blank_y && y < blank_y_end && x >= blank_x && x < blank_x_end;
  }
};

// A call of its own: one thread makes it, and inlined it would take registers from all. It writes by a
// reference, for the place of a returned struct passes for the caller's own, which no race detector watches.
template <bool Full>
[[gnu::noinline]] __device__ void draw_plan(const Augment& augment, const AugmentKey& key, const Batch& batch,
                                            std::int64_t sample, Plan& to) {
  const AugmentPlan plan = Full ? plan_augment(augment, batch.height, batch.width, key, sample)
                                : plan_unscaled(augment, batch.height, batch.width, key, sample);
  const auto narrow = [](std::int64_t i) { return static_cast<int>(i); };
  to = {narrow(plan.dy),
        narrow(plan.dx),
        narrow(plan.blank_y),
        narrow(plan.blank_x),
        narrow(plan.blank_y + plan.blank_height),
        narrow(plan.blank_x + plan.blank_width),
        narrow(plan.box_height),
        narrow(plan.box_width),
        plan.flip,
        plan.vertical_flip,
        plan.recolours,
        plan.colour};
}

// Where the bytes of a pixel come from. `Box`: from a part that is scaled, for masks from the nearest pixel.
template <class T, bool Box> struct Source {
  static constexpr bool kMixes = Box && !std::is_same_v<T, std::uint8_t>;
  static constexpr int kAtOnce = kMixes ? 2 : 4;  // pixels of a thread whose bytes are on their way

  int at = -1;              // the first byte; of four pixels, of the upper left one; -1: outside
  int right = 0, down = 0;  // bytes from there to the others,
  int right_weight = 0, down_weight = 0;  // and their weights

  __device__ __forceinline__ void find(const Plan& plan, const Batch& batch, Padding padding, int pixel) {
    const auto [y, column] = batch.by_width.divide(static_cast<std::uint32_t>(pixel));
    const int top = static_cast<int>(y), left = static_cast<int>(column),
              row = plan.vertical_flip ? batch.height - 1 - top : top,
              x = plan.flip ? batch.width - 1 - left : left;
    const auto byte = [&](std::int64_t i, std::int64_t j) {
      return (static_cast<int>(i) * batch.width + static_cast<int>(j)) * batch.channels;
    };
    if constexpr (Box) {
      const Tap rows(row, plan.dy, plan.box_height, batch.height),
          columns(x, plan.dx, plan.box_width, batch.width);
      at = kMixes ? byte(rows.low, columns.low) : byte(rows.nearest, columns.nearest);
      right = byte(0, columns.high - columns.low), down = byte(rows.high - rows.low, 0);
      right_weight = columns.weight, down_weight = rows.weight;
    } else {
      const int i = padded_index(row + plan.dy, batch.height, padding),
                j = padded_index(x + plan.dx, batch.width, padding);
      if (i >= 0 && j >= 0) at = byte(i, j);
    }
  }
  __device__ __forceinline__ std::uint8_t byte(const std::uint8_t* image, int channel) const {
    if (at < 0) return kOutside<T>;
    const std::uint8_t* const from = image + at + channel;
    if constexpr (kMixes)
      return between({from[0], from[right], from[down], from[down + right]}, down_weight, right_weight);
    return from[0];
  }
  __device__ __forceinline__ std::uint8_t byte(const std::uint8_t* image, int channel,
                                               const ColourMatrix& colour) const {
    if (at < 0) return kOutside<T>;
    const std::uint8_t pixel[3] = {byte(image, 0), byte(image, 1), byte(image, 2)};
    return colour(pixel, channel);
  }
};

/// The bytes of a tile's pixels, wherever they come from.
template <class T, bool Box>
__device__ __forceinline__ void gather(const Plan& plan, const Batch& batch, Padding padding,
                                       const std::uint8_t* image, int first, int count, std::uint8_t* tile) {
  using Pixel = Source<T, Box>;
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += kThreads * Pixel::kAtOnce) {
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int i = 0; i < Pixel::kAtOnce; ++i) {
        if (begin + i * kThreads < count) f(i, begin + i * kThreads);
      }
    };
    Pixel pixels[Pixel::kAtOnce];
    each([&](int i, int pixel) { pixels[i].find(plan, batch, padding, first + pixel); });
    const auto fill = [&](const auto& byte_of) {
      for (int c = 0; c < batch.channels; ++c) {
        std::uint8_t bytes[Pixel::kAtOnce];
#pragma unroll
        for (int i = 0; i < Pixel::kAtOnce; ++i) bytes[i] = byte_of(pixels[i], c);
        each([&](int i, int pixel) { tile[pixel * batch.channels + c] = bytes[i]; });
      }
    };
    if (plan.recolours) {
      fill([&](const Pixel& pixel, int c) { return pixel.byte(image, c, plan.colour); });
    } else {
      fill([&](const Pixel& pixel, int c) { return pixel.byte(image, c); });
    }
  }
}

/// Elements for the bytes of a tile. `wide`: they can leave 16 bytes at a time.
template <class T>
__device__ __forceinline__ void look_up(const Batch& batch, const T* table, const std::uint8_t* tile,
                                        int values, bool wide, T* y) {
  constexpr int W = cuda::kVec<T>;
  for (int at = static_cast<int>(threadIdx.x) * W; at < values; at += kThreads * W) {
    const cuda::Vec<std::uint8_t, W> bytes = cuda::load<W>(tile + at);
    auto channel = static_cast<int>(batch.by_channels.divide(static_cast<std::uint32_t>(at)).rest);
    cuda::Vec<T, W> out;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      out[i] = table[channel * 256 + bytes[i]];
      if (++channel == batch.channels) channel = 0;
    }
    if (wide) {
      cuda::store<W>(y + at, out);
    } else {
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if (at + i < values) y[at + i] = out[i];
      }
    }
  }
}

/// A byte in and an element out per value, and a look-up. A block takes part after part of images: one thread
/// draws what happens to the sample, then all make tile after tile. `Full`: the plan may hold all that there
/// is.
template <class T, bool Box, bool Full>
__global__ void __launch_bounds__(kThreads, kBlocks)
    augment_parts(Augment augment, AugmentKey key, Batch batch, const T* table, bool table_fits, bool wide,
                  T* y) {
  __shared__ Plan plan;
  T* const shared = cuda::dynamic_shared<T>();
  const int channels = batch.channels, thread = static_cast<int>(threadIdx.x);
  auto* const tile = reinterpret_cast<std::uint8_t*>(shared + (table_fits ? 256 * channels : 0));
  for (int i = thread; table_fits && i < 256 * channels; i += kThreads) shared[i] = table[i];
  const std::int64_t pixels = std::int64_t{batch.height} * batch.width;
  for (std::int64_t task = blockIdx.x; task < batch.count * batch.parts; task += gridDim.x) {
    const std::int64_t n = task / batch.parts;
    __syncthreads();  // the table is there, and no thread needs the last plan
    if (thread == 0) draw_plan<Full>(augment, key.now(), batch, batch.samples[n], plan);
    __syncthreads();
    const std::uint8_t* const image = batch.images + (batch.rows ? batch.rows[n] : n) * pixels * channels;
    for (int i = static_cast<int>(task % batch.parts); i < batch.tiles; i += batch.parts) {
      const int first = i * batch.tile, left = static_cast<int>(pixels) - first,
                count = left < batch.tile ? left : batch.tile;
      T* const out = y + (n * pixels + first) * channels;
      gather<T, Box>(plan, batch, augment.padding, image, first, count, tile);
      __syncthreads();
      look_up(batch, table_fits ? shared : table, tile, count * channels, wide, out);
      __syncthreads();
      if (!plan.blanks_any()) continue;
      for (int pixel = thread; pixel < count; pixel += kThreads) {
        const auto [row, column] = batch.by_width.divide(static_cast<std::uint32_t>(first + pixel));
        if (!plan.blanks(static_cast<int>(row), static_cast<int>(column))) continue;
        for (int c = 0; c < channels; ++c) out[pixel * channels + c] = T(0.0f);
      }
    }
  }
}

/// 8 or 16 bytes in and out per point or box. A thread for each.
__global__ void __launch_bounds__(kThreads) move_points(Augment augment, AugmentKey key, Batch batch,
                                                        int each, int numbers, const float* x, float* y) {
  const std::int64_t all = batch.count * each, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const AugmentPlan plan =
        plan_augment(augment, batch.height, batch.width, key.now(), batch.samples[i / each]);
    const float* from = x + i * numbers;
    (numbers == 4 ? move_box : move_point)(plan, batch.height, batch.width, from, y + i * numbers);
  }
}

}  // namespace

void augment(CudaContext& context, const Augment& augment, const AugmentKey& key, const Tensor& images,
             const Tensor& rows, const Tensor& samples, const Tensor& table, Out y) {
  if (y.numel() == 0) return;
  const std::int64_t count = y.shape()[0], height = y.shape()[1], width = y.shape()[2],
                     channels = y.shape()[3];
  // Tiles begin where 16 elements may.
  const std::int64_t tile = std::clamp<std::int64_t>(kTileMax / channels / 16 * 16, 16, kTile),
                     tiles = (height * width + tile - 1) / tile;
  // Each part draws its image's plan again, so there are only as many as keep the device busy.
  const std::int64_t parts = std::clamp<std::int64_t>(context.multiprocessors() * kBlocks / count, 1, tiles);
  const Batch batch{.images = images.data<std::uint8_t>(),
                    .rows = rows.defined() ? rows.data<std::int64_t>() : nullptr,
                    .samples = samples.data<std::int64_t>(),
                    .count = count,
                    .height = static_cast<int>(height),
                    .width = static_cast<int>(width),
                    .channels = static_cast<int>(channels),
                    .by_width = cuda::Divider(width),
                    .by_channels = cuda::Divider(channels),
                    .tile = static_cast<int>(tile),
                    .tiles = static_cast<int>(tiles),
                    .parts = static_cast<int>(parts)};
  const auto run_as = [&]<class T>() {
    constexpr int W = cuda::kVec<T>;
    T* out = y.data<T>();
    const std::size_t table_bytes = static_cast<std::size_t>(256 * channels) * sizeof(T);
    const bool fits = table_bytes <= kTableMax;
    const cuda::Launch how{
        .name = "augment",
        .grid = cuda::blocks_for(context, count * parts, 1, kBlocks),
        .block = kThreads,
        .shared_bytes = (fits ? table_bytes : 0) + static_cast<std::size_t>(tile * channels)};
    const bool wide = height * width * channels % W == 0 && cuda::aligned<W>(out);
    const auto kernel = augment.resized_crop         ? augment_parts<T, true, true>
                        : augment.random_erasing > 0 ? augment_parts<T, false, true>
                                                     : augment_parts<T, false, false>;
    cuda::launch(context, how, kernel, augment, key, batch, table.data<T>(), fits, wide, out);
  };
  if (y.dtype() == DType::u8) return run_as.template operator()<std::uint8_t>();
  dispatch_floating(y.dtype(), "augment", run_as);
}

void augment_points(CudaContext& context, const Augment& augment, const AugmentKey& key, std::int64_t height,
                    std::int64_t width, const Tensor& samples, const Tensor& x, Out y) {
  if (x.numel() == 0) return;
  Batch batch{};
  batch.samples = samples.data<std::int64_t>();
  batch.count = x.shape()[0];
  batch.height = static_cast<int>(height);
  batch.width = static_cast<int>(width);
  const auto each = static_cast<int>(x.shape()[1]), numbers = static_cast<int>(x.shape()[2]);
  cuda::launch(context, {"augment_points", cuda::blocks_for(context, batch.count * each, kThreads), kThreads},
               move_points, augment, key, batch, each, numbers, x.data<float>(), y.data<float>());
}

}  // namespace athanor::kernels
