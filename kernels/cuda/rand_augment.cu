#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/rand_augment.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256, kMaxChannels = 3;

struct Batch {
  const std::uint8_t* images;
  const std::int64_t *rows, *samples;  // rows may be null
  std::int64_t count;
  int height, width, channels;
};

// By a reference, and apart: as in augment.cu.
[[gnu::noinline]] __device__ void draw(const RandPass& pass, const AugmentKey& key, const Batch& batch,
                                       std::int64_t sample, RandChange& to) {
  const RandChange drawn = draw_change(pass, batch.height, batch.width, key, sample);
  to = drawn;
}

[[gnu::noinline]] __device__ void make_table(const RandChange& change, const std::int32_t* histogram,
                                             std::uint8_t* table) {
  fill_table(change, histogram, table);
}

/// A block for each image: one thread draws what happens to it; all count its bytes where the operation asks
/// for that; one for each channel makes a table of them.
__global__ void __launch_bounds__(kThreads)
    change_images(RandPass pass, AugmentKey key, Batch batch, std::uint8_t* y) {
  __shared__ RandChange change;
  __shared__ std::int32_t histogram[kMaxChannels * 256];
  __shared__ std::uint8_t table[kMaxChannels * 256];
  const int thread = static_cast<int>(threadIdx.x);
  const int pixels = batch.height * batch.width, numel = pixels * batch.channels;
  for (std::int64_t n = blockIdx.x; n < batch.count; n += gridDim.x) {
    __syncthreads();  // no thread needs the last image's
    if (thread == 0) draw(pass, key.now(), batch, batch.samples[n], change);
    for (int i = thread; i < kMaxChannels * 256; i += kThreads) histogram[i] = 0;
    __syncthreads();
    const std::uint8_t* const bytes = batch.images + (batch.rows ? batch.rows[n] : n) * numel;
    const bool of_luma = change.op == RandOp::contrast;
    for (int i = thread; change.counts() && i < pixels; i += kThreads) {
      const std::uint8_t* const pixel = bytes + i * batch.channels;
      if (of_luma) atomicAdd(&histogram[luma(pixel, batch.channels)], 1);
      for (int c = 0; !of_luma && c < batch.channels; ++c) atomicAdd(&histogram[c * 256 + pixel[c]], 1);
    }
    __syncthreads();
    if (thread < batch.channels)
      make_table(change, histogram + (of_luma ? 0 : thread * 256), table + thread * 256);
    __syncthreads();
    const RandPixels result{change, table, {bytes, batch.height, batch.width, batch.channels}};
    for (int i = thread; i < numel; i += kThreads) {
      const int pixel = i / batch.channels;
      y[n * numel + i] = result(pixel / batch.width, pixel % batch.width, i % batch.channels);
    }
  }
}

}  // namespace

void rand_augment(CudaContext& context, const RandPass& pass, const AugmentKey& key, const Tensor& images,
                  const Tensor& rows, const Tensor& samples, Out y) {
  if (y.numel() == 0) return;
  const Batch batch{.images = images.data<std::uint8_t>(),
                    .rows = cuda::data_or_null<std::int64_t>(rows),
                    .samples = samples.data<std::int64_t>(),
                    .count = y.shape()[0],
                    .height = static_cast<int>(y.shape()[1]),
                    .width = static_cast<int>(y.shape()[2]),
                    .channels = static_cast<int>(y.shape()[3])};
  cuda::launch(context, {"rand_augment", cuda::blocks_for(context, batch.count, 1, 8), kThreads},
               change_images, pass, key, batch, y.data<std::uint8_t>());
}

}  // namespace athanor::kernels
