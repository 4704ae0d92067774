#include "gpu.h"
#include "kernels.h"
#include "simt/tensor_core.h"

namespace engine {
namespace {

constexpr int kTile = 16;

unsigned blocks(int count, int each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// The lanes of a warp have adjacent j: they read 128 adjacent bytes of b, and the same number of a.
__global__ void simple_kernel(ProductSize size, const float* a, const float* b, float* c) {
  const int i = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= size.m || j >= size.n) return;
  float sum = c[i * size.n + j];
  for (int k = 0; k < size.k; ++k) sum += a[i * size.k + k] * b[k * size.n + j];
  c[i * size.n + j] = sum;
}

// No thread returns early: those outside of c still load their part of the tiles, and come to every barrier.
__global__ void tiled_kernel(ProductSize size, const float* a, const float* b, float* c) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int y = static_cast<int>(threadIdx.y), x = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.y) * kTile + y, j = static_cast<int>(blockIdx.x) * kTile + x;
  const bool inside = i < size.m && j < size.n;
  float sum = inside ? c[i * size.n + j] : 0;
  for (int depth = 0; depth < size.k; depth += kTile) {
    left[y][x] = i < size.m && depth + x < size.k ? a[i * size.k + depth + x] : 0;
    right[y][x] = depth + y < size.k && j < size.n ? b[(depth + y) * size.n + j] : 0;
    __syncthreads();  // the tiles are complete
    for (int d = 0; d < kTile; ++d) sum += left[y][d] * right[d][x];
    __syncthreads();  // no thread reads them any more
  }
  if (inside) c[i * size.n + j] = sum;
}

// Tensor cores. Two adjacent depths of f16 are one register, a pair. A block has 2 x 2 warps, a warp 16 x 16
// elements of c.
constexpr int kSide = 32, kThreads = 128, kPairs = kMmaDepth / 2;
// Pairs from line to line: the eight lines of a fragment begin in different banks.
constexpr int kPitch = kPairs + 4;

using Tile = std::uint32_t[kSide][kPitch];

__device__ void load_tile(Tile& tile, const std::uint32_t* x, int first, int lines, int depth, int pairs) {
  for (int at = static_cast<int>(threadIdx.x); at < kSide * kPairs; at += kThreads) {
    const int line = at / kPairs, pair = at % kPairs;
    tile[line][pair] = first + line < lines ? x[(first + line) * pairs + depth + pair] : 0;
  }
}

__global__ void mma_kernel(ProductSize size, const std::uint32_t* a, const std::uint32_t* b, float* c) {
  __shared__ Tile left, right;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int top = static_cast<int>(blockIdx.y) * kSide, side = static_cast<int>(blockIdx.x) * kSide;
  const int row = warp / 2 * 16, column = warp % 2 * 16;
  float sums[2][4] = {};
  for (int depth = 0; depth < size.k / 2; depth += kPairs) {
    load_tile(left, a, top, size.m, depth, size.k / 2);
    load_tile(right, b, side, size.n, depth, size.k / 2);
    __syncthreads();
    for (int d = t; d < kPairs; d += 8) {
      const std::uint32_t fragment[4] = {left[row + g][d], left[row + g + 8][d], left[row + g][d + 4],
                                         left[row + g + 8][d + 4]};
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t(&line)[kPitch] = right[column + 8 * j + g];
        simt::mma<simt::Factor::f16>(sums[j], fragment, line[d], line[d + 4]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 2; ++j)
    for (int e = 0; e < 4; ++e) {
      const int m = top + row + g + e / 2 * 8, n = side + column + 8 * j + 2 * t + e % 2;
      if (m < size.m && n < size.n) c[m * size.n + n] += sums[j][e];
    }
}

// The rows of x one after another, each filled up with zeros to `columns`; numbers by way of `convert`.
template <class T, class F> std::vector<T> gathered(const Matrix& x, std::int64_t columns, F convert) {
  std::vector<T> values(static_cast<std::size_t>(x.rows * columns));
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j)
      values[static_cast<std::size_t>(i * columns + j)] = convert(x.at(i, j));
  return values;
}
std::vector<float> gathered(const Matrix& x) {
  return gathered<float>(x, x.columns, [](float value) { return value; });
}

// Calls f(c on the device), with what c holds on the host, and copies it back.
template <class F> void on_device(float* c, std::int64_t m, std::int64_t n, std::int64_t row_stride, F f) {
  const DeviceArray<float> device(gathered({c, m, n, row_stride}));
  f(device.data());
  const std::vector<float> result = device.values();
  for (std::int64_t i = 0; i < m; ++i) std::copy_n(result.data() + i * n, n, c + i * row_stride);
}

ProductSize size_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
}

}  // namespace

void matmul_simple(ProductSize size, const float* a, const float* b, float* c) {
  launch({"matmul_simple", dim3(blocks(size.n, 32), blocks(size.m, 8)), dim3(32, 8)}, simple_kernel, size, a,
         b, c);
}

void matmul_tiled(ProductSize size, const float* a, const float* b, float* c) {
  launch({"matmul_tiled", dim3(blocks(size.n, kTile), blocks(size.m, kTile)), dim3(kTile, kTile)},
         tiled_kernel, size, a, b, c);
}

void matmul_mma(ProductSize size, const std::uint16_t* a, const std::uint16_t* b, float* c) {
  launch({"matmul_mma", dim3(blocks(size.n, kSide), blocks(size.m, kSide)), kThreads}, mma_kernel, size,
         reinterpret_cast<const std::uint32_t*>(a), reinterpret_cast<const std::uint32_t*>(b), c);
}

void cuda_matmul(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride) {
  if (a.rows == 0 || b.columns == 0 || a.columns == 0) return;
  const DeviceArray<float> left(gathered(a)), right(gathered(b));
  on_device(c, a.rows, b.columns, row_stride, [&](float* sums) {
    matmul_tiled(size_of(a.rows, b.columns, a.columns), left.data(), right.data(), sums);
  });
}

void cuda_matmul_f16(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride) {
  if (a.rows == 0 || b.columns == 0 || a.columns == 0) return;
  const std::int64_t depth = (a.columns + kMmaDepth - 1) / kMmaDepth * kMmaDepth;
  const DeviceArray<std::uint16_t> left(gathered<std::uint16_t>(a, depth, f16_bits)),
      right(gathered<std::uint16_t>(b.transposed(), depth, f16_bits));
  on_device(c, a.rows, b.columns, row_stride, [&](float* sums) {
    matmul_mma(size_of(a.rows, b.columns, depth), left.data(), right.data(), sums);
  });
}

}  // namespace engine
