#include "kernels/cuda/vec.h"
#include "tests/simt/kernels.h"

// Kernels whose sectors, bank conflicts and divergence follow from a textbook's arithmetic. The lines that
// tests ask for are marked.

namespace simt::test {
namespace {

constexpr int kTile = 32;

__global__ void transpose_naive_kernel(int n, const float* x, float* y) {
  const int row = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  const int col = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  y[col * n + row] = x[row * n + col];  // line: transpose_naive
}

template <int Padding> __global__ void transpose_tiled_kernel(int n, const float* x, float* y) {
  __shared__ float tile[kTile][kTile + Padding];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int row0 = static_cast<int>(blockIdx.y) * kTile, col0 = static_cast<int>(blockIdx.x) * kTile;
  tile[ty][tx] = x[(row0 + ty) * n + col0 + tx];  // line: transpose_in
  __syncthreads();
  y[(col0 + ty) * n + row0 + tx] = tile[tx][ty];  // line: transpose_out
}

__global__ void copy_vectors_kernel(const float4* x, float4* y) {
  __shared__ float4 values[64];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = values[63 - threadIdx.x];
}

template <class T> __global__ void copy_packets_kernel(const T* x, T* y) {
  constexpr int kWidth = athanor::cuda::kVec<T>;
  const unsigned at = kWidth * threadIdx.x;
  athanor::cuda::store(y + at, athanor::cuda::load<kWidth>(x + at));
}

// Every lane reads one word, then the words of every second bank, then each its own.
__global__ void banks_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  values[threadIdx.x + 32] = 2;
  __syncwarp();
  const float same = values[7];                   // line: banks_same
  const float strided = values[2 * threadIdx.x];  // line: banks_strided
  out[threadIdx.x] = same + strided;
}

__global__ void diverging_kernel(float* out) {
  if (threadIdx.x % 2 == 0) {  // line: diverging_branch
    out[threadIdx.x] = 1;      // line: diverging_even
  } else {
    out[2 * threadIdx.x] = 2;  // line: diverging_odd
  }
}

__global__ void uniform_kernel(float* out) {
  if (threadIdx.x / 32 % 2 == 0) {
    out[threadIdx.x] = 1;
  } else {
    out[2 * threadIdx.x] = 2;
  }
}

// Lane i goes round i + 1 times.
__global__ void triangle_kernel(float* out) {
  for (unsigned i = 0; i <= threadIdx.x; ++i) out[i * 32 + threadIdx.x] = 1;  // line: triangle
}

__global__ void misaligned_reads_kernel(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x + 1];
}

// 8 bytes a lane go by half warps: in order, then with every lane of a half in the same two banks.
__global__ void halves_kernel(double* out) {
  __shared__ double values[16 * 32];
  values[threadIdx.x] = 1;       // line: halves_write
  values[16 * threadIdx.x] = 3;  // line: halves_strided
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void atomics_kernel(int* totals) {
  __shared__ int mine[32];
  mine[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&mine[0], 1);              // line: atomics_same
  atomicAdd(&mine[threadIdx.x], 1);    // line: atomics_own
  atomicMax(totals + threadIdx.x, 1);  // line: atomics_global
}

}  // namespace

cudaError_t transpose_naive(int n, const float* x, float* y) {
  const auto tiles = static_cast<unsigned>(n / kTile);
  return launch(nullptr, {"transpose_naive", {tiles, tiles}, {kTile, kTile}}, transpose_naive_kernel, n, x,
                y);
}
cudaError_t transpose_tiled(bool padded, int n, const float* x, float* y) {
  const auto tiles = static_cast<unsigned>(n / kTile);
  return launch(nullptr, {padded ? "transpose_padded" : "transpose_tiled", {tiles, tiles}, {kTile, kTile}},
                padded ? transpose_tiled_kernel<1> : transpose_tiled_kernel<0>, n, x, y);
}
cudaError_t copy_vectors(const float4* x, float4* y) {
  return launch(nullptr, {"copy_vectors", 1, 64}, copy_vectors_kernel, x, y);
}
cudaError_t copy_packets(const float* x, float* y) {
  return launch(nullptr, {"copy_packets", 1, 64}, copy_packets_kernel<float>, x, y);
}
cudaError_t copy_packets(const std::uint8_t* x, std::uint8_t* y) {
  return launch(nullptr, {"copy_packets", 1, 64}, copy_packets_kernel<std::uint8_t>, x, y);
}
cudaError_t banks(float* out) {
  return launch(nullptr, {"banks", 1, 32}, banks_kernel, out);
}
cudaError_t diverging(float* out) {
  return launch(nullptr, {"diverging", 1, 128}, diverging_kernel, out);
}
cudaError_t uniform(float* out) {
  return launch(nullptr, {"uniform", 1, 128}, uniform_kernel, out);
}
cudaError_t triangle(float* out) {
  return launch(nullptr, {"triangle", 1, 32}, triangle_kernel, out);
}
cudaError_t halves(double* out) {
  return launch(nullptr, {"halves", 1, 32}, halves_kernel, out);
}
cudaError_t atomics(unsigned threads, int* totals) {
  return launch(nullptr, {"atomics", 1, threads}, atomics_kernel, totals);
}
cudaError_t misaligned_reads(const float* x, float* y) {
  return launch(nullptr, {"misaligned_reads", 1, 32}, misaligned_reads_kernel, x, y);
}

}  // namespace simt::test
