#include "kernels/cuda/conv_padded.h"
#include "kernels/cuda/vec.h"

namespace athanor::cuda {
namespace {

constexpr int kThreads = 256;

/// A thread makes a pixel at a time.
template <int W>
__global__ void __launch_bounds__(kThreads)
    widen_pixels(const std::uint16_t* x, int channels, std::int64_t pixels, std::uint16_t* y) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pixels; i += step) {
    Vec<std::uint16_t, W> pixel;
#pragma unroll
    for (int c = 0; c < W; ++c) pixel[c] = c < channels ? x[i * channels + c] : std::uint16_t{0};
    store<W>(y + i * W, pixel);
  }
}

}  // namespace

void pad_channels(CudaContext& context, const Tensor& x, Out y) {
  const std::int64_t channels = x.dim(-1), width = y.dim(-1), pixels = y.numel() / width;
  ATH_CHECK((width == 4 || width == 8) && channels < width && size_of(x.dtype()) == 2,
            "pad_channels: y must have 4 or 8 channels of 16 bits, and x fewer, but got {} {} and {}",
            x.dtype(), y.shape(), x.shape());
  launch(context, {"pad_channels", blocks_for(context, pixels, kThreads), kThreads},
         width == 4 ? widen_pixels<4> : widen_pixels<8>, reinterpret_cast<const std::uint16_t*>(x.raw_data()),
         static_cast<int>(channels), pixels, reinterpret_cast<std::uint16_t*>(y.raw_data()));
}

}  // namespace athanor::cuda
