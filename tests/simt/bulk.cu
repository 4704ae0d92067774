#include "simt/bulk_copy.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

constexpr unsigned kTile = 64;  // floats of a stage

__device__ __forceinline__ void init(MemoryBarrier* barrier, unsigned arrivals, bool fence = true) {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, arrivals);  // line: bulk_init
    if (fence) fence_mbarrier_init();
  }
  __syncthreads();
}

// The first warp's first thread brings tiles, two at a time, and the other warps write them out, reversed.
__global__ void ring_kernel(int tiles, const float* x, float* y) {
  __shared__ __align__(16) float stage[2][kTile];
  __shared__ MemoryBarrier full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], kTile);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile >= 2) mbarrier_wait(&empty[tile % 2], static_cast<unsigned>(tile / 2 - 1) & 1);
      mbarrier_arrive_expect_tx(&full[tile % 2], kTile * 4);
      bulk_load(stage[tile % 2], x + tile * static_cast<int>(kTile), kTile * 4, &full[tile % 2]);
    }
    return;
  }
  const unsigned i = threadIdx.x - 32;
  for (int tile = 0; tile < tiles; ++tile) {
    const unsigned parity = static_cast<unsigned>(tile / 2) & 1;
    mbarrier_wait(&full[tile % 2], parity);
    y[static_cast<unsigned>(tile) * kTile + i] = stage[tile % 2][kTile - 1 - i];
    mbarrier_arrive(&empty[tile % 2]);
  }
}

// Brings a tile, and shows how it lies.
__global__ void tile_kernel(const __grid_constant__ TensorMap from, unsigned bytes, int x, int y, int z,
                            int rank, unsigned char* shown) {
  __shared__ __align__(1024) unsigned char tile[16384];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, bytes);
    if (rank == 2) {
      tensor_load(tile, from, x, y, &full);
    } else {
      tensor_load(tile, from, x, y, z, &full);
    }
  }
  mbarrier_wait(&full, 0);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shown[i] = tile[i];
}

// ---- planted: one bug in each instance

#define NAME(name) name,
enum class Bug { SIMT_BULK_BUGS(NAME) SIMT_TENSOR_MAP_BUGS(NAME) };
#undef NAME

template <Bug kBug> __global__ void bulk_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  constexpr bool kByAll = kBug == Bug::bulk_by_all, kMisaligned = kBug == Bug::bulk_misaligned;
  constexpr unsigned kBytes = kBug == Bug::bulk_odd_size ? 100 : kMisaligned ? 240 : 256;
  if (kBug == Bug::bulk_over_writes) stage[threadIdx.x] = 0;  // line: bulk_write
  init(&full, kByAll ? 2 : 1, kBug != Bug::bulk_no_init_fence);
  for (unsigned turn = 0; turn < (kBug == Bug::bulk_over_reader ? 2 : 1); ++turn) {
    if (threadIdx.x < (kByAll ? 2 : 1)) {
      if (kBug != Bug::bulk_expects_nothing)
        mbarrier_arrive_expect_tx(&full, kBug == Bug::bulk_expects_too_much ? 512 : kBytes);
      bulk_load(stage + (kMisaligned ? 2 : 0), x, kBytes, &full);     // line: bulk_copy
      if (kBug == Bug::bulk_expects_nothing) mbarrier_arrive(&full);  // line: bulk_arrive
      if (kBug == Bug::bulk_no_wait) mbarrier_wait(&full, 0);         // the others do not
    }
    if (kBug == Bug::bulk_nobody_waits) return;
    if (kBug != Bug::bulk_no_wait) mbarrier_wait(&full, turn);  // line: bulk_wait
    if (kBug == Bug::bulk_over_reader) __syncthreads();
    if (kBug != Bug::bulk_no_wait || threadIdx.x >= 32)
      out[threadIdx.x] = stage[threadIdx.x];  // line: bulk_read
  }
}

template <Bug kBug> __global__ void tensor_kernel(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(1024) unsigned char tile[4096];
  __shared__ MemoryBarrier full;
  constexpr bool kInside = kBug == Bug::tensor_expects_inside;  // only half of the tile is in the tensor
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, kInside ? 512 : 1024);
    if (kBug == Bug::tensor_wrong_rank) {
      tensor_load(tile, map, 0, 0, 0, &full);  // line: tensor_of_three
    } else {
      tensor_load(tile + (kInside ? 0 : 128), map, 0, kInside ? 4 : 0, &full);  // line: tensor_load
    }
  }
  mbarrier_wait(&full, 0);  // line: tensor_wait
  out[threadIdx.x] = tile[threadIdx.x];
}

template <class... P>
cudaError_t run(const char* name, void (*kernel)(P...), unsigned threads, P... parameters) {
  return launch(nullptr, {name, 1, threads, 256}, kernel, parameters...);
}

// 8 rows of 64 f16, where `out` has room for 2 and one row more.
cudaError_t run_map(const char* name, void (*kernel)(TensorMap, float*), float* out) {
  TensorMap map;
  TensorLayout layout{
      .data = out, .size = {16, 8}, .stride = {0, 32}, .tile = {64, 8}, .swizzle = Swizzle::bytes_128};
  if (const cudaError_t status = make_tensor_map(&map, layout); status != cudaSuccess) return status;
  return launch(nullptr, {name, 1, 64}, kernel, map, out + 64);
}

}  // namespace

cudaError_t ring(int tiles, const float* x, float* y) {
  return run("ring", ring_kernel, 96, tiles, x, y);
}
cudaError_t bring_tile(const TensorMap& from, unsigned bytes, const int (&at)[3], int rank,
                       unsigned char* shown) {
  return launch(nullptr, {"bring_tile", 1, 64}, tile_kernel, from, bytes, at[0], at[1], at[2], rank, shown);
}

#define PLANTED(name)                                                                        \
  cudaError_t name(float* out) {                                                             \
    return run(#name, bulk_kernel<Bug::name>, 64, static_cast<const float*>(out), out + 64); \
  }
SIMT_BULK_BUGS(PLANTED)
#undef PLANTED
#define PLANTED(name)                                     \
  cudaError_t name(float* out) {                          \
    return run_map(#name, tensor_kernel<Bug::name>, out); \
  }
SIMT_TENSOR_MAP_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
