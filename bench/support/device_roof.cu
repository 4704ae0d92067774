#include "bench/support/device_roof.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.h"

namespace athanor::bench {
namespace {

constexpr int kCopyThreads = 256;
constexpr int kInFlight = 4;
using Word = cuda::Vec<std::uint32_t, 4>;

// 16 bytes a thread, four of them in flight: 2 bytes moved per byte.
__global__ void __launch_bounds__(kCopyThreads) roof_copy(std::int64_t n, const Word* from, Word* to) {
  const std::int64_t step = std::int64_t{gridDim.x} * kCopyThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kCopyThreads + threadIdx.x; i < n; i += kInFlight * step) {
    Word words[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * step < n) words[k] = from[i + k * step];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * step < n) to[i + k * step] = words[k];
    }
  }
}

// Independent chains in registers: enough to hide the latency of an FMA.
constexpr int kChains = 16;
constexpr int kSteps = 2048;

__global__ void __launch_bounds__(kFmaThreads) roof_fma(float factor, float term, float* out) {
  float chain[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) chain[i] = static_cast<float>(threadIdx.x + i);
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chain[i] = fmaf(chain[i], factor, term);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  out[blockIdx.x * kFmaThreads + threadIdx.x] = sum;
}

}  // namespace

void queue_copy(Device device, const void* from, void* to, std::int64_t bytes,
                int blocks_per_multiprocessor) {
  const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Word));
  CudaContext& context = cuda_context(device);
  const unsigned blocks =
      cuda::blocks_for(context, words / kInFlight, kCopyThreads, blocks_per_multiprocessor);
  cuda::launch(context, {"roof_copy", blocks, kCopyThreads}, roof_copy, words, static_cast<const Word*>(from),
               static_cast<Word*>(to));
}

void queue_driver_copy(Device device, const void* from, void* to, std::int64_t bytes) {
  ATH_TRY(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          static_cast<cudaStream_t>(cuda_context(device).native_stream())));
}

double queue_fma(Device device, float* out, unsigned blocks) {
  cuda::launch(cuda_context(device), {"roof_fma", blocks, kFmaThreads}, roof_fma, 0.999f, 0.001f, out);
  return 2.0 * kChains * kSteps * kFmaThreads * blocks;
}

}  // namespace athanor::bench
