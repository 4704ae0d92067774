#include "simt/bulk_copy.h"
#include "simt/wgmma.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

// Both factors are brought as they lie in shared memory, so that their layout is the caller's. One step
// follows the other at step_bytes.
template <Factor kType, int N, Major kLeft, Major kRight>
__global__ void __launch_bounds__(128)
    product_kernel(WgmmaCase c, const unsigned char* a, const unsigned char* b,
                   const std::uint32_t* registers, float* sums) {
  __shared__ __align__(1024) unsigned char left[8192], right[32768];
  for (unsigned i = threadIdx.x; i < c.left_bytes; i += 128) left[i] = a[i];
  for (unsigned i = threadIdx.x; i < c.right_bytes; i += 128) right[i] = b[i];
  fence_proxy_async();
  __syncthreads();
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = sums[threadIdx.x * (N / 2) + static_cast<unsigned>(i)];
  wgmma_fence(d);
  const FactorDescriptor from = factor_descriptor(left, c.swizzle, c.left_leading, c.left_stride),
                         by = factor_descriptor(right, c.swizzle, c.right_leading, c.right_stride);
  for (int step = 0; step < c.steps; ++step) {
    const bool accumulate = c.accumulate || step > 0;
    if (c.from_registers) {
      std::uint32_t mine[4];
      for (unsigned i = 0; i < 4; ++i)
        mine[i] = registers[(static_cast<unsigned>(step) * 128 + threadIdx.x) * 4 + i];
      if constexpr (kLeft == Major::depth)
        wgmma<kType, N, kRight>(d, mine, by.moved(step * c.right_step), accumulate);
    } else {
      wgmma<kType, N, kLeft, kRight>(d, from.moved(step * c.left_step), by.moved(step * c.right_step),
                                     accumulate);
    }
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  for (int i = 0; i < N / 2; ++i) sums[threadIdx.x * (N / 2) + static_cast<unsigned>(i)] = d[i];
}

// y [64, 64] = a [64, k] b [64, k]^T: the fifth warp brings tiles of 64 x 64 in two stages, four warps
// multiply, and give a stage back when they have waited for what reads it. The two other ways are bugs.
template <Release kWhen>
__global__ void __launch_bounds__(160) gemm_kernel(const __grid_constant__ TensorMap a,
                                                   const __grid_constant__ TensorMap b, int tiles, float* y) {
  __shared__ __align__(1024) unsigned char left[2][8192], right[2][8192];
  __shared__ MemoryBarrier full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % 2;
      if (tile >= 2) mbarrier_wait(&empty[stage], static_cast<unsigned>(tile / 2 - 1) & 1);
      mbarrier_arrive_expect_tx(&full[stage], 2 * 8192);
      tensor_load(left[stage], a, tile * 64, 0, &full[stage]);  // line: wgmma_gemm_load
      tensor_load(right[stage], b, tile * 64, 0, &full[stage]);
    }
    return;
  }
  float d[32] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    mbarrier_wait(&full[stage], static_cast<unsigned>(tile / 2) & 1);
    const FactorDescriptor from = factor_descriptor(left[stage], Swizzle::bytes_128, 0, 1024),
                           by = factor_descriptor(right[stage], Swizzle::bytes_128, 0, 1024);
    wgmma_fence(d);
    for (int k = 0; k < 4; ++k)
      wgmma<Factor::f16, 64>(d, from.moved(k * 32), by.moved(k * 32));  // line: wgmma_gemm
    wgmma_commit();
    if (kWhen == Release::before_the_wait && threadIdx.x == 0) mbarrier_arrive(&empty[stage]);
    // The tile before this one has been multiplied: its stage is free.
    wgmma_wait<1>(d);
    if (threadIdx.x == 0 && kWhen == Release::one_group_too_soon) mbarrier_arrive(&empty[stage]);
    if (threadIdx.x == 0 && kWhen == Release::in_time && tile > 0) mbarrier_arrive(&empty[1 - stage]);
  }
  wgmma_wait<0>(d);
  for (int i = 0; i < 32; ++i) {
    const Element at = fragment::sums(static_cast<int>(threadIdx.x % 32), i);
    y[(static_cast<int>(threadIdx.x) / 32 * 16 + at.row) * 64 + at.column] = d[i];
  }
}

// ---- planted: one product of 64 x 8 x 16 in dynamic shared memory, without a swizzle

struct Factors {
  FactorDescriptor left, right;
  unsigned char* memory;

  __device__ __forceinline__ explicit Factors(bool fence) : memory(dynamic_shared<unsigned char>()) {
    // 16-bit ones: 0x3c00.
    for (unsigned i = threadIdx.x; i < 1152; i += blockDim.x)
      reinterpret_cast<std::uint16_t*>(memory)[i] = 0x3c00;  // line: wgmma_write
    if (fence) fence_proxy_async();
    __syncthreads();
    left = factor_descriptor(memory, Swizzle::none, 1024, 128);
    right = factor_descriptor(memory + 2048, Swizzle::none, 128, 256);
  }
};

__global__ void wgmma_right_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_no_fence_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_no_fence
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_no_second_fence_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);
  wgmma_commit();
  wgmma_wait<0>(d);
  for (float& sum : d) sum *= 2;
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_no_second_fence
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_no_wait_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_no_wait
  wgmma_commit();
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_no_commit_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_no_commit
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_touches_sums_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);
  wgmma_commit();
  d[1] += 1;
  wgmma_wait<0>(d);  // line: wgmma_touches_sums
  out[threadIdx.x] = d[0] + d[1];
}

__global__ void wgmma_no_proxy_fence_kernel(float* out) {
  const Factors factors(false);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_no_proxy_fence
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_factor_changes_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_factor_changes
  wgmma_commit();
  factors.memory[threadIdx.x] = 0;  // line: wgmma_factor_changes_write
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_part_of_a_group_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_part_of_a_group
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_one_warp_less_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  if (threadIdx.x < 96) {
    wgmma_fence(d);
    wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_one_warp_less
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_two_factors_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  const FactorDescriptor right = factors.right.moved(threadIdx.x < 64 ? 0 : -128);
  wgmma<Factor::f16, 8>(d, factors.left, right);  // line: wgmma_two_factors
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_one_lane_less_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  if (threadIdx.x != 40) wgmma<Factor::f16, 8>(d, factors.left, factors.right);  // line: wgmma_one_lane_less
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_second_line_kernel(float* out) {
  __shared__ __align__(1024) unsigned char tile[16384];
  for (unsigned i = threadIdx.x; i < 16384; i += 128) tile[i] = 0;
  fence_proxy_async();
  __syncthreads();
  float d[4] = {};
  wgmma_fence(d);
  const FactorDescriptor left = factor_descriptor(tile + 128, Swizzle::bytes_128, 0, 1024),
                         right = factor_descriptor(tile + 8192, Swizzle::bytes_128, 0, 1024);
  wgmma<Factor::f16, 8>(d, left, right);  // line: wgmma_second_line
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

__global__ void wgmma_no_distance_kernel(float* out) {
  const Factors factors(true);
  float d[4] = {};
  wgmma_fence(d);
  const FactorDescriptor left = factor_descriptor(factors.memory, Swizzle::none, 1024, 0);
  wgmma<Factor::f16, 8>(d, left, factors.right);  // line: wgmma_no_distance
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0];
}

template <Factor kType, int N, Major kLeft, Major kRight>
cudaError_t run_product(const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                        const std::uint32_t* registers, float* sums) {
  return launch(nullptr, {"wgmma_product", 1, 128}, product_kernel<kType, N, kLeft, kRight>, c, a, b,
                registers, sums);
}

template <Factor kType>
cudaError_t run_type(const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                     const std::uint32_t* registers, float* sums) {
  if (c.left_major == Major::rows || c.right_major == Major::rows) {
    if constexpr (kType != Factor::tf32) {
      if (c.left_major == Major::depth)
        return run_product<kType, 64, Major::depth, Major::rows>(c, a, b, registers, sums);
      if (c.right_major == Major::depth)
        return run_product<kType, 64, Major::rows, Major::depth>(c, a, b, registers, sums);
      return run_product<kType, 64, Major::rows, Major::rows>(c, a, b, registers, sums);
    }
    return cudaErrorInvalidValue;
  }
  switch (c.columns) {
    case 8: return run_product<kType, 8, Major::depth, Major::depth>(c, a, b, registers, sums);
    case 64: return run_product<kType, 64, Major::depth, Major::depth>(c, a, b, registers, sums);
    case 256: return run_product<kType, 256, Major::depth, Major::depth>(c, a, b, registers, sums);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t wgmma_product(Factor type, const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                          const std::uint32_t* registers, float* sums) {
  switch (type) {
    case Factor::f16: return run_type<Factor::f16>(c, a, b, registers, sums);
    case Factor::bf16: return run_type<Factor::bf16>(c, a, b, registers, sums);
    case Factor::tf32: return run_type<Factor::tf32>(c, a, b, registers, sums);
  }
  return cudaErrorInvalidValue;
}

cudaError_t wgmma_gemm(Release when, const TensorMap& a, const TensorMap& b, int tiles, float* y) {
  const auto kernel = when == Release::in_time           ? &gemm_kernel<Release::in_time>
                      : when == Release::before_the_wait ? &gemm_kernel<Release::before_the_wait>
                                                         : &gemm_kernel<Release::one_group_too_soon>;
  return launch(nullptr, {"wgmma_gemm", 1, 160}, kernel, a, b, tiles, y);
}

cudaError_t wgmma_part_of_a_group(float* out) {
  return launch(nullptr, {"wgmma_part_of_a_group", 1, 96, 2304}, wgmma_part_of_a_group_kernel, out);
}
#define PLANTED(name)                                                  \
  cudaError_t name(float* out) {                                       \
    return launch(nullptr, {#name, 1, 128, 2304}, name##_kernel, out); \
  }
SIMT_WARPGROUP_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
