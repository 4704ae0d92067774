#include "tests/simt/kernels.h"

namespace simt::test {
namespace {

constexpr unsigned kAll = ~0u;

__device__ __forceinline__ std::int64_t global_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t global_size() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

__constant__ float constants[2];
__device__ float sums_of_lanes[2];

__global__ void weigh_kernel(float* x) {
  x[threadIdx.x] *= constants[threadIdx.x % 2];
  atomicAdd(&sums_of_lanes[threadIdx.x % 2], x[threadIdx.x]);
}

__global__ void axpy_kernel(std::int64_t n, float a, const float* __restrict__ x, float* __restrict__ y) {
  for (std::int64_t i = global_index(); i < n; i += global_size()) y[i] += a * __ldg(x + i);  // line: axpy
}

__global__ void fill_kernel(std::int64_t n, float value, float* y) {
  for (std::int64_t i = global_index(); i < n; i += global_size()) y[i] = value;  // line: fill
}

__device__ float warp_sum(float v) {
#pragma unroll
  for (int bits = 16; bits > 0; bits >>= 1) v += __shfl_xor_sync(kAll, v, bits);
  return v;
}

template <int Threads> __device__ float block_sum(float v) {
  __shared__ float partial[Threads / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  v = warp_sum(v);
  __syncthreads();  // an earlier call may still read
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  return warp_sum(lane < Threads / 32 ? partial[lane] : 0.0f);
}

template <int Threads>
__global__ void __launch_bounds__(Threads) row_sum_kernel(int cols, const float* x, float* y) {
  const float* row = x + static_cast<std::int64_t>(blockIdx.x) * cols;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += Threads) sum += row[i];
  sum = block_sum<Threads>(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void softmax_kernel(int cols, const float* x, float* y) {
  float* row = static_cast<float*>(dynamic_shared_memory());
  __shared__ float largest[4];
  x += static_cast<std::int64_t>(blockIdx.x) * cols;
  y += static_cast<std::int64_t>(blockIdx.x) * cols;
  float top = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += 128) top = max(top, row[i] = x[i]);
  for (int bits = 16; bits > 0; bits >>= 1) top = max(top, __shfl_xor_sync(kAll, top, bits));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = top;
  __syncthreads();
  top = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += 128) sum += row[i] = __expf(row[i] - top);
  sum = block_sum<128>(sum);
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += 128) y[i] = row[i] / sum;
}

constexpr int kTile = 16;
__global__ void matmul_kernel(int m, int n, int k, const float* a, const float* b, float* c) {
  __shared__ float as[kTile][kTile + 1], bs[kTile][kTile];
  const int row = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  const int col = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const int ka = k0 + static_cast<int>(threadIdx.x), kb = k0 + static_cast<int>(threadIdx.y);
    as[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
    bs[threadIdx.y][threadIdx.x] = kb < k && col < n ? b[kb * n + col] : 0.0f;
    __syncthreads();
    for (int q = 0; q < kTile; ++q) sum = fmaf(as[threadIdx.y][q], bs[q][threadIdx.x], sum);
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}

// One column of the result for each function.
__global__ void warp_functions_kernel(unsigned* out) {
  const unsigned lane = threadIdx.x;
  const unsigned odd = __ballot_sync(kAll, lane & 1);
  out[0 * 32 + lane] = __shfl_sync(kAll, lane, 5);
  out[1 * 32 + lane] = __shfl_sync(kAll, lane, 9, 8);
  out[2 * 32 + lane] = __shfl_up_sync(kAll, lane, 3);
  out[3 * 32 + lane] = __shfl_down_sync(kAll, lane, 3, 16);
  out[4 * 32 + lane] = __shfl_xor_sync(kAll, lane, 7);
  out[5 * 32 + lane] = odd;
  out[6 * 32 + lane] = static_cast<unsigned>(__any_sync(kAll, lane == 31));
  out[7 * 32 + lane] = static_cast<unsigned>(__all_sync(kAll, lane < 31));
}

__global__ void block_votes_kernel(int* out) {
  const int thread = static_cast<int>(threadIdx.x);
  const int counted = __syncthreads_count(thread % 3 == 0);
  const int any = __syncthreads_or(thread == 77);
  const int all = __syncthreads_and(thread != 77);
  if (thread == 0) {
    out[0] = counted;
    out[1] = any;
    out[2] = all;
  }
}

__global__ void count_kernel(int* total) {
  atomicAdd(total, 1);
}

__global__ void neighbours_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

// Neighbouring bytes belong to different threads, of different blocks.
__global__ void bytes_kernel(std::uint8_t* out) {
  const unsigned i = threadIdx.x * gridDim.x + blockIdx.x;
  out[i] = static_cast<std::uint8_t>(i);
}

// Each half of a warp synchronises for itself.
__global__ void half_warps_kernel(float* out) {
  __shared__ float values[32];
  const unsigned lane = threadIdx.x, mask = lane < 16 ? 0xffffu : 0xffff0000u;
  values[lane] = static_cast<float>(lane);
  __syncwarp(mask);
  out[lane] = values[lane ^ 15];
}

// Half a warp agrees, then all of it: some lanes wait for all while others still wait for the half.
__global__ void half_then_all_kernel(unsigned* out) {
  unsigned v = threadIdx.x;
  if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffu, v, 8);
  v += 100 * __shfl_xor_sync(kAll, v, 1);
  out[threadIdx.x] = v;
}

// A barrier that the compiler may well duplicate, one for each way threads come.
__global__ void two_ways_kernel(float* out) {
  __shared__ float values[64];
  const bool low = threadIdx.x < 40;
  float v = low ? 1.0f : out[threadIdx.x];
  for (int round = 0; round < 3; ++round) {
    if (low) v += 1;
    values[threadIdx.x] = v;
    __syncthreads();
    v = low ? values[63 - threadIdx.x] : 2 * values[threadIdx.x - 1];
    __syncthreads();
  }
  out[threadIdx.x] = v;
}

__global__ void broadcast_kernel(const float* x, float* y) {
  y[threadIdx.x] = x[0];  // line: broadcast
}

// What a shuffle does not order, __syncwarp does.
__global__ void shuffle_and_syncwarp_kernel(float* out) {
  __shared__ float values[64];
  float v = static_cast<float>(threadIdx.x);
  values[threadIdx.x] = v;
  v = __shfl_xor_sync(kAll, v, 1);
  __syncwarp();
  out[threadIdx.x] = v - values[threadIdx.x ^ 1];
}

__global__ void order_kernel(int* order, int* next) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

}  // namespace

cudaError_t weigh(const float (&weights)[2], float* x, float (&sums)[2]) {
  const float zeros[2] = {};
  if (cudaMemcpyToSymbol(constants, weights, sizeof weights) != cudaSuccess ||
      cudaMemcpyToSymbol(sums_of_lanes, zeros, sizeof zeros) != cudaSuccess)
    return cudaGetLastError();
  simt::launch(nullptr, {"weigh", 1, 64}, weigh_kernel, x);
  return cudaMemcpyFromSymbol(&sums[1], sums_of_lanes, sizeof(float), sizeof(float));
}

cudaError_t axpy(std::int64_t n, float a, const float* x, float* y, cudaStream_t stream, unsigned blocks) {
  return launch(stream, {"axpy", blocks, 256}, axpy_kernel, n, a, x, y);
}
cudaError_t fill(std::int64_t n, float value, float* y, cudaStream_t stream) {
  return launch(stream, {"fill", 4, 64}, fill_kernel, n, value, y);
}
cudaError_t row_sum(unsigned rows, int cols, const float* x, float* y, cudaStream_t stream) {
  return launch(stream, {"row_sum", rows, 256}, row_sum_kernel<256>, cols, x, y);
}
cudaError_t softmax(unsigned rows, int cols, const float* x, float* y, cudaStream_t stream) {
  return launch(stream, {"softmax", rows, 128, static_cast<std::size_t>(cols) * sizeof(float)},
                softmax_kernel, cols, x, y);
}
cudaError_t matmul(int m, int n, int k, const float* a, const float* b, float* c, cudaStream_t stream) {
  const auto tiles = [](int size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  return launch(stream, {"matmul", {tiles(n), tiles(m)}, {kTile, kTile}}, matmul_kernel, m, n, k, a, b, c);
}
cudaError_t warp_functions(unsigned* out, cudaStream_t stream) {
  return launch(stream, {"warp_functions", 1, 32}, warp_functions_kernel, out);
}
cudaError_t block_votes(int* out, cudaStream_t stream) {
  return launch(stream, {"block_votes", 1, 100}, block_votes_kernel, out);
}
cudaError_t count(unsigned blocks, unsigned threads, int* total, cudaStream_t stream) {
  return launch(stream, {"count", blocks, threads}, count_kernel, total);
}
cudaError_t neighbours(float* out, cudaStream_t stream) {
  return launch(stream, {"neighbours", 1, 64}, neighbours_kernel, out);
}
cudaError_t bytes(std::uint8_t* out, cudaStream_t stream) {
  return launch(stream, {"bytes", 4, 50}, bytes_kernel, out);
}
cudaError_t half_warps(float* out, cudaStream_t stream) {
  return launch(stream, {"half_warps", 1, 32}, half_warps_kernel, out);
}
cudaError_t half_then_all(unsigned* out, cudaStream_t stream) {
  return launch(stream, {"half_then_all", 1, 32}, half_then_all_kernel, out);
}
cudaError_t broadcast(const float* x, float* y, cudaStream_t stream) {
  return launch(stream, {"broadcast", 1, 64}, broadcast_kernel, x, y);
}
cudaError_t two_ways(float* out, cudaStream_t stream) {
  return launch(stream, {"two_ways", 1, 64}, two_ways_kernel, out);
}
cudaError_t shuffle_and_syncwarp(float* out, cudaStream_t stream) {
  return launch(stream, {"shuffle_and_syncwarp", 1, 64}, shuffle_and_syncwarp_kernel, out);
}
cudaError_t order_of_threads(unsigned blocks, unsigned threads, int* order, int* next, cudaStream_t stream) {
  return launch(stream, {"order", blocks, threads}, order_kernel, order, next);
}

}  // namespace simt::test
