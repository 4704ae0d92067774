#include "kernels/augment.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/vec.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;             // values of one piece that a thread makes
constexpr std::size_t kTableMax = 32768;  // bytes of a table that goes to shared memory

struct Batch {
  const std::uint8_t* images;
  const std::int64_t *rows, *samples;  // rows may be null
  std::int64_t count;                  // of samples
  int height, width, channels;
  int pieces;  // of kThreads * kPerThread values, that an image is cut into
};

// AugmentPlan, as shared memory holds it.
struct Plan {
  int dy, dx, blank_y, blank_x, blank_y_end, blank_x_end, box_height, box_width;
  bool flip, recolours;
  ColourMatrix colour;
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
        plan.recolours,
        plan.colour};
}

// Walks the values of an image in order; what it gives are bytes of the source, or -1 for a blanked one.
// `Box`: of a part that is scaled, for masks to the nearest pixel.
template <class T, bool Box> struct Reader {
  const Plan& plan;
  const Batch& batch;
  Padding padding;
  const std::uint8_t* image;
  int y, x, channel;
  std::int64_t source = 0;  // of the pixel's first byte; -1 outside, -2 blanked
  Tap row = {}, at = {};    // of a Box

  __device__ __forceinline__ void place() {
    const bool blank = y >= plan.blank_y && y < plan.blank_y_end && x >= plan.blank_x && x < plan.blank_x_end;
    const std::int64_t column = plan.flip ? batch.width - 1 - x : x;
    if constexpr (Box) {
      row = Tap(y, plan.dy, plan.box_height, batch.height);
      at = Tap(column, plan.dx, plan.box_width, batch.width);
      source = (row.nearest * batch.width + at.nearest) * batch.channels;
    } else {
      const std::int64_t from_y = padded_index(y + plan.dy, batch.height, padding);
      const std::int64_t from_x = padded_index(column + plan.dx, batch.width, padding);
      source = from_y < 0 || from_x < 0 ? -1 : (from_y * batch.width + from_x) * batch.channels;
    }
    if (blank) source = -2;
  }
  __device__ __forceinline__ int scaled(int c) const {
    return between(image, batch.width, batch.channels, row, at, c);
  }
  __device__ __forceinline__ int byte() const {
    if (source < 0) return source == -1 ? kOutside<T> : -1;
    if constexpr (Box && !std::is_same_v<T, std::uint8_t>) {
      if (!plan.recolours) return scaled(channel);
      std::uint8_t pixel[3];
#pragma unroll
      for (int c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(scaled(c));
      return plan.colour(pixel, channel);
    }
    return plan.recolours ? plan.colour(image + source, channel) : image[source + channel];
  }
  __device__ __forceinline__ void next() {
    if (++channel < batch.channels) return;
    channel = 0;
    if (++x == batch.width) {
      x = 0;
      ++y;
    }
    place();
  }
};

/// A byte in and an element out per value, and a look-up. A block takes piece after piece of images: one
/// thread draws what happens to the sample, and each makes runs of W neighbouring values. `Full`: it may draw
/// all that there is.
template <class T, int W, bool Box, bool Full>
__global__ void __launch_bounds__(kThreads)
    augment_pieces(Augment augment, AugmentKey key, Batch batch, const T* table, bool table_fits, T* y) {
  __shared__ Plan plan;
  T* copied = cuda::dynamic_shared<T>();
  if (table_fits) {
    for (int i = static_cast<int>(threadIdx.x); i < 256 * batch.channels; i += kThreads) copied[i] = table[i];
  }
  const T* lookup = table_fits ? copied : table;
  const int numel = batch.height * batch.width * batch.channels;
  for (std::int64_t task = blockIdx.x; task < batch.count * batch.pieces; task += gridDim.x) {
    const std::int64_t n = task / batch.pieces;
    __syncthreads();  // the table is there, and no thread needs the last plan
    if (threadIdx.x == 0) draw_plan<Full>(augment, key.now(), batch, batch.samples[n], plan);
    __syncthreads();
    const std::uint8_t* image = batch.images + (batch.rows ? batch.rows[n] : n) * numel;
    const int first = static_cast<int>(task % batch.pieces) * kThreads * kPerThread;
#pragma unroll
    for (int run = 0; run < kPerThread; run += W) {
      const int at = first + run * kThreads + static_cast<int>(threadIdx.x) * W;
      if (at >= numel) break;
      const int pixel = at / batch.channels;
      Reader<T, Box> reader{
          plan, batch, augment.padding, image, pixel / batch.width, pixel % batch.width, at % batch.channels};
      reader.place();
      cuda::Vec<T, W> out;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const int byte = reader.byte();
        out[i] = byte < 0 ? T(0.0f) : lookup[reader.channel * 256 + byte];
        if (i + 1 < W) reader.next();
      }
      cuda::store<W>(y + n * numel + at, out);
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
  const std::int64_t numel = y.numel() / y.shape()[0], piece = kThreads * kPerThread;
  const Batch batch{.images = images.data<std::uint8_t>(),
                    .rows = rows.defined() ? rows.data<std::int64_t>() : nullptr,
                    .samples = samples.data<std::int64_t>(),
                    .count = y.shape()[0],
                    .height = static_cast<int>(y.shape()[1]),
                    .width = static_cast<int>(y.shape()[2]),
                    .channels = static_cast<int>(y.shape()[3]),
                    .pieces = static_cast<int>((numel + piece - 1) / piece)};
  const auto run_as = [&]<class T>() {
    constexpr int W = cuda::kVec<T> < kPerThread ? cuda::kVec<T> : kPerThread;  // a run lies in one piece
    T* out = y.data<T>();
    const std::size_t bytes = static_cast<std::size_t>(256 * batch.channels) * sizeof(T);
    const bool fits = bytes <= kTableMax;
    const cuda::Launch how{.name = "augment",
                           .grid = cuda::blocks_for(context, batch.count * batch.pieces, 1, 8),
                           .block = kThreads,
                           .shared_bytes = fits ? bytes : 0};
    const bool runs = numel % W == 0 && cuda::aligned<W>(out);
    const auto kernel = augment.resized_crop         ? augment_pieces<T, 1, true, true>
                        : augment.random_erasing > 0 ? augment_pieces<T, 1, false, true>
                        : runs                       ? augment_pieces<T, W, false, false>
                                                     : augment_pieces<T, 1, false, false>;
    cuda::launch(context, how, kernel, augment, key, batch, table.data<T>(), fits, out);
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
