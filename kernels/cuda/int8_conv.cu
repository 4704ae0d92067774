#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/conv_views.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/int8_finish.h"
#include "kernels/int8_weights.h"

// Convolutions of u8 by i8: products of matrices on tensor cores, whose sums are exact (gemm.h), or a thread
// for every few channels where there is one input channel in each group. Sums of integers have no order, so a
// GPU gives the bytes that a CPU gives. Only our kernels run: cuBLASLt multiplies i8 by i8 alone.

namespace athanor::cuda {
namespace {

using Bytes = Finish<std::uint8_t>;

/// The bytes of weights, as the view of a factor has them: tensor cores take them for i8.
const std::uint8_t* bytes_of(const kernels::Int8Weights& w) {
  return reinterpret_cast<const std::uint8_t*>(w.weights().data<std::int8_t>());
}

void products(const CudaContext& context, const ConvSize& z, const Tensor& x, std::uint8_t x_zero,
              const kernels::Int8Weights& w, const Bytes& finish) {
  const std::int64_t gk = z.group_k(), depth = z.r * z.s * z.group_c();
  const bool padded = z.padding_h > 0 || z.padding_w > 0;
  for_images(z.n, z.p * z.q, kMaxCounted, [&](std::int64_t first, std::int64_t images) {
    const std::uint8_t* const from = x.data<std::uint8_t>() + first * z.h * z.w * z.c;
    const auto run = [&]<class Left>(const Left& left) {
      Gemm<std::uint8_t, Left, MatrixView<std::uint8_t>, MatrixTo> g{
          .a = left,
          .b = {bytes_of(w), gk, depth, depth, 1, {gk * depth}},
          .to = {z.k, 1},
          .size = int8_product(z, images),
          .batches = groups<3>(z.groups, {z.group_c(), gk * depth, gk}),
          .summed = no_sum(),
          .finish = finish.moved(first * z.p * z.q * z.k),
          .batch_channels = gk,
          .channels = z.k};
      gemm(context, kInt8Conv, g);
    };
    if (z.is_pointwise()) {
      run(MatrixView<std::uint8_t>(from, images * z.p * z.q, z.c, z.c, 1, {}));
    } else {
      run(PaddedPatchView<std::uint8_t>{patches<std::uint8_t, true>(z, from),
                                        padded ? x_zero : std::uint8_t{0}});
    }
  });
}

/// One thread per output pixel and W channels. W > 1 where there is one output channel per input channel.
template <int W>
__global__ void __launch_bounds__(kDepthwiseThreads)
    depthwise_bytes(DepthwiseSizes z, Unravel unravel, std::uint32_t count, const std::uint8_t* x,
                    std::int32_t x_zero, const std::int8_t* filters, Bytes finish) {
  for (std::uint32_t index = blockIdx.x * kDepthwiseThreads + threadIdx.x; index < count;
       index += gridDim.x * kDepthwiseThreads) {
    const auto at = unravel(index);
    const int k = at.packet * W,
              c = static_cast<int>(z.channels_of.divide(static_cast<std::uint32_t>(k)).whole);
    const std::uint8_t* const image = x + std::int64_t{at.image} * z.h * z.w * z.c + c;
    std::int32_t sums[W];
#pragma unroll
    for (int v = 0; v < W; ++v) sums[v] = 0;
    for (int r = 0; r < z.r; ++r) {
      const int row = at.row * z.stride_h - z.padding_h + r * z.dilation_h;
#pragma unroll 4
      for (int s = 0; s < z.s; ++s) {
        const int column = at.column * z.stride_w - z.padding_w + s * z.dilation_w;
        const auto tap = load<W>(filters + std::int64_t{r * z.s + s} * z.k + k);
        if (row >= 0 && row < z.h && column >= 0 && column < z.w) {
          const auto pixel = load<W>(image + (std::int64_t{row} * z.w + column) * z.c);
#pragma unroll
          for (int v = 0; v < W; ++v) sums[v] += std::int32_t{pixel[v]} * tap[v];
        } else {
#pragma unroll
          for (int v = 0; v < W; ++v) sums[v] += x_zero * tap[v];
        }
      }
    }
    finish.packet<W>(std::int64_t{index} * W, k, sums);
  }
}

void depthwise(const CudaContext& context, const ConvSize& z, const Tensor& x, std::int32_t x_zero,
               const kernels::Int8Weights& w, const Bytes& finish) {
  const Scratch scratch = context.scratch(filter_elements(z));
  const std::int8_t* const filters = transpose_filters(context, z, w.weights().data<std::int8_t>(), scratch);
  const auto* const from = x.data<std::uint8_t>();
  const auto run = [&]<int W>() {
    const std::int64_t packets = z.k / W;
    for_images(z.n, z.p * z.q * packets, kMaxCounted, [&](std::int64_t first, std::int64_t images) {
      const std::int64_t count = images * z.p * z.q * packets;
      launch(context, {kInt8Conv, blocks_for(context, count, kDepthwiseThreads), kDepthwiseThreads},
             depthwise_bytes<W>, DepthwiseSizes(z), Unravel(z.p, z.q, packets),
             static_cast<std::uint32_t>(count), from + first * z.h * z.w * z.c, x_zero, filters,
             finish.moved(first * z.p * z.q * z.k));
    });
  };
  constexpr int kWidth = 8;  // channels of mobile networks are multiples of it
  if (depthwise_width(z, kWidth) > 1 && aligned<kWidth>(from) && finish.in_packets<kWidth>()) {
    run.template operator()<kWidth>();
  } else {
    run.template operator()<1>();
  }
}

void run(const CudaContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
         const kernels::Int8Weights& w, const Tensor& y, const Bytes& finish) {
  if (y.numel() == 0) return;
  const Tensor none;
  const ConvCall call{ConvPass::forward, params, x, w.weights(), none, y};
  check_sizes(call);
  if (!is_depthwise(call.z))
    return products(context, call.z, x, static_cast<std::uint8_t>(x_zero), w, finish);
  check_images(call.z);
  depthwise(context, call.z, x, x_zero, w, finish);
}

}  // namespace
}  // namespace athanor::cuda

namespace athanor::kernels {

void conv2d_int8(CudaContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
                 const Int8Weights& w, const Int8Residual& residual, const Rounding& rounding, Out y) {
  cuda::run(context, params, x, x_zero, w, y,
            {.y = y.data<std::uint8_t>(),
             .real = nullptr,
             .multiplier = w.multiplier().data<float>(),
             .bias = w.bias().data<std::int32_t>(),
             .residual = cuda::data_or_null<std::uint8_t>(residual.tensor),
             .residual_scale = residual.scale,
             .residual_zero = residual.zero,
             .round = RoundToU8(rounding)});
}

void conv2d_int8(CudaContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
                 const Int8Weights& w, Out y) {
  cuda::run(context, params, x, x_zero, w, y,
            {.y = nullptr,
             .real = y.data<float>(),
             .multiplier = w.multiplier().data<float>(),
             .bias = w.bias().data<std::int32_t>(),
             .residual = nullptr,
             .residual_scale = 0,
             .residual_zero = 0,
             .round = RoundToU8(Rounding())});
}

}  // namespace athanor::kernels
