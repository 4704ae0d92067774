#include "rms_norm.h"

// Rung 5: 16 bytes at a time, and each element of x is read once: a thread keeps its part of the row in
// registers.

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeld = 16;  // floats of a row that a thread can keep: rows of up to 4096

// N neighbouring floats, moved by one instruction.
template <int N> struct alignas(4 * N) Vec { float value[N]; };

__device__ float block_sum(float value) {
  __shared__ float sums[kWarps];
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp];
  return total;
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    rms_norm_vector(const Vec<N>* x, const Vec<N>* w, Vec<N>* y, int cols) {
  const int vectors = cols / N;
  x += static_cast<std::size_t>(blockIdx.x) * vectors;
  y += static_cast<std::size_t>(blockIdx.x) * vectors;

  Vec<N> held[kHeld / N];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kHeld / N; ++k) {
    const int j = static_cast<int>(threadIdx.x) + k * kThreads;
    if (j >= vectors) break;
    held[k] = x[j];
#pragma unroll
    for (int i = 0; i < N; ++i) squares += held[k].value[i] * held[k].value[i];
  }
  const float scale = 1 / sqrtf(block_sum(squares) / cols + kEps);
#pragma unroll
  for (int k = 0; k < kHeld / N; ++k) {
    const int j = static_cast<int>(threadIdx.x) + k * kThreads;
    if (j >= vectors) break;
    const Vec<N> weight = w[j];
    Vec<N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result.value[i] = held[k].value[i] * scale * weight.value[i];
    y[j] = result;
  }
}

template <int N> void launch_vector(lab::Size size, std::span<const float* const> x, float* y) {
  lab::launch({"rms_norm_vector", static_cast<unsigned>(size.rows), kThreads}, rms_norm_vector<N>,
              reinterpret_cast<const Vec<N>*>(x[0]), reinterpret_cast<const Vec<N>*>(x[1]),
              reinterpret_cast<Vec<N>*>(y), size.cols);
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  if (size.cols > kThreads * kHeld)
    throw std::invalid_argument("rms_norm_vector: a row has at most 4096 elements");
  // Every row begins at 16 bytes if the rows are as long as that; else one float at a time.
  size.cols % 4 == 0 ? launch_vector<4>(size, x, y) : launch_vector<1>(size, x, y);
}
