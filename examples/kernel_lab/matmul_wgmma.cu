#include "matmul.h"
#include "simt/bulk_copy.h"
#include "simt/tensor_core.h"
#include "simt/wgmma.h"

// Rung 5, for sm_90a: one thread brings tiles by tensor maps (TMA), four warps multiply them out of shared
// memory (wgmma). No thread of the four computes an address of a or b, or holds one of their numbers. wgmma
// would cut floats off to tf32, so a kernel before it rounds them.

constexpr int kTile = 64, kDepth = 32, kStages = 4;  // 32 floats: a line of 128 bytes
constexpr int kConsumers = 128, kThreads = kConsumers + 32;
constexpr int kTileBytes = kTile * kDepth * 4;

__global__ void round_to_tf32(const float* x, float* to, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = __uint_as_float(simt::to_tf32(x[i]));
}

struct Shared {
  unsigned char left[kStages][kTileBytes], right[kStages][kTileBytes];
};

__device__ void produce(Shared& shared, const simt::TensorMap& a, const simt::TensorMap& b, int steps,
                        simt::MemoryBarrier* full, simt::MemoryBarrier* empty) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages, round = step / kStages;
    if (round > 0) simt::mbarrier_wait(&empty[stage], static_cast<unsigned>(round - 1) & 1);
    simt::mbarrier_arrive_expect_tx(&full[stage], 2 * kTileBytes);
    simt::tensor_load(shared.left[stage], a, step * kDepth, static_cast<int>(blockIdx.y) * kTile,
                      &full[stage]);
    simt::tensor_load(shared.right[stage], b, step * kDepth, static_cast<int>(blockIdx.x) * kTile,
                      &full[stage]);
  }
}

__device__ void consume(const Shared& shared, int steps, simt::MemoryBarrier* full,
                        simt::MemoryBarrier* empty, float (&sums)[kTile / 2]) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages, round = step / kStages;
    simt::mbarrier_wait(&full[stage], static_cast<unsigned>(round) & 1);
    const auto left = simt::factor_descriptor(shared.left[stage], simt::Swizzle::bytes_128, 0, 1024);
    const auto right = simt::factor_descriptor(shared.right[stage], simt::Swizzle::bytes_128, 0, 1024);
    simt::wgmma_fence(sums);
#pragma unroll
    for (int k = 0; k < kDepth / 8; ++k)
      simt::wgmma<simt::Factor::tf32, kTile>(sums, left.moved(k * 32), right.moved(k * 32));
    simt::wgmma_commit();
    simt::wgmma_wait<0>(sums);
    if (threadIdx.x == 0) simt::mbarrier_arrive(&empty[stage]);  // for the four warps, whose work is one
  }
}

__global__ void __launch_bounds__(kThreads)
    matmul_wgmma(const __grid_constant__ simt::TensorMap a, const __grid_constant__ simt::TensorMap b,
                 float* y, int rows, int cols) {
  // The pattern of the turned pieces begins at multiples of 1024 bytes; dynamic memory promises 16.
  auto* const memory = lab::dynamic_shared<unsigned char>();
  auto& shared = *reinterpret_cast<Shared*>(memory + (-reinterpret_cast<std::uintptr_t>(memory) & 1023));
  __shared__ simt::MemoryBarrier full[kStages], empty[kStages];
  const int steps = (cols + kDepth - 1) / kDepth;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) simt::mbarrier_init(&full[i], 1), simt::mbarrier_init(&empty[i], 1);
    simt::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce(shared, a, b, steps, full, empty);
    return;
  }
  float sums[kTile / 2] = {};
  consume(shared, steps, full, empty, sums);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const simt::Element at = simt::fragment::sums(lane, i);
    const int m = static_cast<int>(blockIdx.y) * kTile + warp * 16 + at.row;
    const int n = static_cast<int>(blockIdx.x) * kTile + at.column;
    if (m < rows && n < cols) y[m * cols + n] = sums[i];
  }
}

// Tiles of 64 rows and 32 columns of a matrix, with their pieces of 16 bytes turned as wgmma expects them.
simt::TensorMap tiles_of(float* x, int rows, int cols) {
  simt::TensorLayout layout;
  layout.type = simt::TensorType::f32;
  layout.data = x;
  layout.size[0] = static_cast<std::uint64_t>(cols), layout.size[1] = static_cast<std::uint64_t>(rows);
  layout.stride[1] = static_cast<std::uint64_t>(cols) * 4;
  layout.tile[0] = kDepth, layout.tile[1] = kTile;
  layout.swizzle = simt::Swizzle::bytes_128;
  simt::TensorMap map;
  lab::check(simt::make_tensor_map(&map, layout), "make_tensor_map");
  return map;
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const int left = size.rows * size.cols, right = size.cols * size.cols;
  float* const rounded = scratch(static_cast<std::size_t>(left + right));
  launch({"round_to_tf32", blocks(left, 256), 256}, round_to_tf32, x[0], rounded, left);
  launch({"round_to_tf32", blocks(right, 256), 256}, round_to_tf32, x[1], rounded + left, right);
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile));
  launch({"matmul_wgmma", grid, kThreads, sizeof(Shared) + 1024}, matmul_wgmma,
         tiles_of(rounded, size.rows, size.cols), tiles_of(rounded + left, size.cols, size.cols), y,
         size.rows, size.cols);
}
