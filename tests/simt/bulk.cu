#include "simt/bulk_copy.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

constexpr unsigned kTile = 64;  // floats of a stage

__device__ __forceinline__ void init(MemoryBarrier* barrier, unsigned arrivals) {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, arrivals);
    fence_mbarrier_init();
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
    if (tile % 3 == 2) {
      while (!mbarrier_test_wait(&full[tile % 2], parity)) {
      }
    } else {
      mbarrier_wait(&full[tile % 2], parity);
    }
    y[static_cast<unsigned>(tile) * kTile + i] = stage[tile % 2][kTile - 1 - i];
    mbarrier_arrive(&empty[tile % 2]);
  }
}

// Each thread fences what it wrote, or the one that starts the copy does after the barrier.
__global__ void store_kernel(bool all_fence, float* y) {
  auto* const stage = dynamic_shared<float>();
  for (unsigned turn = 0; turn < 2; ++turn) {
    stage[threadIdx.x] = static_cast<float>(turn * 64 + threadIdx.x);
    if (all_fence) fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      if (!all_fence) fence_proxy_async();
      bulk_store(y + turn * 64, stage, 256);
      bulk_commit();
      bulk_wait_read<0>();
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) bulk_wait<0>();
}

// Brings a tile, shows how it lies, and puts it into another tensor.
__global__ void tile_kernel(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to,
                            unsigned bytes, int x, int y, int z, int rank, unsigned char* shown) {
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
  if (threadIdx.x == 0 && rank == 2) {
    tensor_store(to, x, y, tile);
    bulk_commit();
    bulk_wait<0>();
  }
}

// ---- planted: bulk copies

__global__ void bulk_no_init_fence_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  if (threadIdx.x == 0) mbarrier_init(&full, 1);  // line: bulk_no_init_fence_init
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 256);
    bulk_load(stage, x, 256, &full);  // line: bulk_no_init_fence
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_no_wait_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 256);
    bulk_load(stage, x, 256, &full);  // line: bulk_no_wait_copy
    mbarrier_wait(&full, 0);
  }
  if (threadIdx.x >= 32) out[threadIdx.x] = stage[threadIdx.x];  // line: bulk_no_wait
}

__global__ void bulk_nobody_waits_kernel(const float* x, float*) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 256);
    bulk_load(stage, x, 256, &full);  // line: bulk_nobody_waits
  }
}

__global__ void bulk_expects_nothing_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    bulk_load(stage, x, 256, &full);  // line: bulk_expects_nothing_copy
    mbarrier_arrive(&full);           // line: bulk_expects_nothing
  }
  mbarrier_wait(&full, 0);  // line: bulk_expects_nothing_wait
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_expects_too_much_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 512);
    bulk_load(stage, x, 256, &full);
  }
  mbarrier_wait(&full, 0);  // line: bulk_expects_too_much
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_by_all_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 2);
  if (threadIdx.x < 2) {
    mbarrier_arrive_expect_tx(&full, 256);
    bulk_load(stage, x, 256, &full);  // line: bulk_by_all
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_over_reader_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  for (unsigned turn = 0; turn < 2; ++turn) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(&full, 256);
      bulk_load(stage, x, 256, &full);  // line: bulk_over_reader
    }
    mbarrier_wait(&full, turn);
    __syncthreads();
    out[threadIdx.x] = stage[threadIdx.x];  // line: bulk_over_reader_read
  }
}

__global__ void bulk_over_writes_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  stage[threadIdx.x] = 0;  // line: bulk_over_writes_write
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 256);
    bulk_load(stage, x, 256, &full);  // line: bulk_over_writes
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_misaligned_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 240);
    bulk_load(stage + 2, x, 240, &full);  // line: bulk_misaligned
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_odd_size_kernel(const float* x, float* out) {
  __shared__ __align__(16) float stage[64];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 100);
    bulk_load(stage, x, 100, &full);  // line: bulk_odd_size
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = stage[threadIdx.x];
}

__global__ void bulk_store_no_fence_kernel(const float*, float* out) {
  auto* const stage = dynamic_shared<float>();
  stage[threadIdx.x] = 1;  // line: bulk_store_no_fence_write
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, stage, 256);  // line: bulk_store_no_fence
    bulk_commit();
    bulk_wait<0>();
  }
}

// A fence before the write, and one that another thread makes without an order, are none.
__global__ void bulk_store_wrong_fence_kernel(const float*, float* out) {
  auto* const stage = dynamic_shared<float>();
  fence_proxy_async();
  stage[threadIdx.x] = 1;  // line: bulk_store_wrong_fence_write
  if (threadIdx.x == 33) fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, stage, 256);  // line: bulk_store_wrong_fence
    bulk_commit();
    bulk_wait<0>();
  }
}

__global__ void bulk_store_no_wait_kernel(const float*, float* out) {
  auto* const stage = dynamic_shared<float>();
  stage[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, stage, 256);  // line: bulk_store_no_wait
    bulk_commit();
  }
}

__global__ void bulk_store_reuse_kernel(const float*, float* out) {
  auto* const stage = dynamic_shared<float>();
  stage[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, stage, 256);  // line: bulk_store_reuse_copy
    bulk_commit();
  }
  __syncthreads();
  stage[threadIdx.x] = 2;  // line: bulk_store_reuse
  if (threadIdx.x == 0) bulk_wait<0>();
}

__global__ void bulk_store_result_kernel(const float*, float* out) {
  auto* const stage = dynamic_shared<float>();
  stage[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, stage, 256);  // line: bulk_store_result_copy
    bulk_commit();
    bulk_wait_read<0>();
    stage[0] = out[0];  // line: bulk_store_result
    bulk_wait<0>();
  }
}

// ---- planted: tensor maps

__global__ void tensor_misaligned_kernel(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(1024) unsigned char tile[4096];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 1024);
    tensor_load(tile + 128, map, 0, 0, &full);  // line: tensor_misaligned
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void tensor_wrong_rank_kernel(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(1024) unsigned char tile[4096];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 1024);
    tensor_load(tile, map, 0, 0, 0, &full);  // line: tensor_wrong_rank
  }
  mbarrier_wait(&full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void tensor_expects_inside_kernel(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(1024) unsigned char tile[4096];
  __shared__ MemoryBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 512);  // only half of the tile is in the tensor
    tensor_load(tile, map, 0, 4, &full);
  }
  mbarrier_wait(&full, 0);  // line: tensor_expects_inside
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
cudaError_t bulk_stores(bool all_fence, float* y) {
  return run("bulk_stores", store_kernel, 64, all_fence, y);
}
cudaError_t bring_tile(const TensorMap& from, const TensorMap& to, unsigned bytes, const int (&at)[3],
                       int rank, unsigned char* shown) {
  return launch(nullptr, {"bring_tile", 1, 64}, tile_kernel, from, to, bytes, at[0], at[1], at[2], rank,
                shown);
}

#define PLANTED(name)                                                               \
  cudaError_t name(float* out) {                                                    \
    return run(#name, name##_kernel, 64, static_cast<const float*>(out), out + 64); \
  }
SIMT_BULK_BUGS(PLANTED)
#undef PLANTED
#define PLANTED(name)                          \
  cudaError_t name(float* out) {               \
    return run_map(#name, name##_kernel, out); \
  }
SIMT_TENSOR_MAP_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
