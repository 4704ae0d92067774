#include "simt/bulk_copy.h"
#include "simt/wgmma.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

// Both factors are brought as they lie in shared memory, so that their layout is the caller's. One step
// follows the other at step_bytes.
template <Factor kType, int N, Major kLeft, Major kRight>
__global__ void __launch_bounds__(128)
    product_kernel(WgmmaCase c, const unsigned char* a, const unsigned char* b, float* sums) {
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
    wgmma<kType, N, kLeft, kRight>(d, from.moved(step * c.left_step), by.moved(step * c.right_step),
                                   c.accumulate || step > 0);
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

#define NAME(name) name,
enum class Bug { SIMT_WARPGROUP_BUGS(NAME) };
#undef NAME

// wgmma_right has none.
template <Bug kBug> __global__ void planted_kernel(float* out) {
  auto* const memory = dynamic_shared<unsigned char>();
  for (unsigned i = threadIdx.x; i < 1152; i += blockDim.x)
    reinterpret_cast<std::uint16_t*>(memory)[i] = 0x3c00;  // 1  // line: wgmma_write
  if (kBug != Bug::wgmma_no_proxy_fence) fence_proxy_async();
  __syncthreads();
  FactorDescriptor left =
      factor_descriptor(memory, Swizzle::none, 1024, kBug == Bug::wgmma_no_distance ? 0 : 128);
  FactorDescriptor right = factor_descriptor(memory + 2048, Swizzle::none, 128, 256);
  if (kBug == Bug::wgmma_two_factors && threadIdx.x >= 64) right = right.moved(-128);
  if constexpr (kBug == Bug::wgmma_second_line) {
    __shared__ __align__(1024) unsigned char tile[1024];
    left = factor_descriptor(tile + 128, Swizzle::bytes_128, 0, 1024);
  }
  float d[4] = {};
  if (kBug != Bug::wgmma_one_warp_less || threadIdx.x < 96) {
    if (kBug != Bug::wgmma_no_fence) wgmma_fence(d);
    if (kBug != Bug::wgmma_one_lane_less || threadIdx.x != 40)
      wgmma<Factor::f16, 8>(d, left, right);  // line: wgmma_product
    if (kBug != Bug::wgmma_no_commit) wgmma_commit();
    if (kBug == Bug::wgmma_factor_changes) memory[threadIdx.x] = 0;  // line: wgmma_factor_changes
    if (kBug == Bug::wgmma_touches_sums) d[1] += 1;
    if (kBug != Bug::wgmma_no_wait) wgmma_wait<0>(d);  // line: wgmma_wait
  }
  if (kBug == Bug::wgmma_no_second_fence) {
    for (float& sum : d) sum *= 2;
    wgmma<Factor::f16, 8>(d, left, right);  // line: wgmma_second_product
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  out[threadIdx.x] = d[0] + (kBug == Bug::wgmma_touches_sums ? d[1] : 0.0f);
}

template <Factor kType, int N, Major kLeft, Major kRight>
cudaError_t run_product(const WgmmaCase& c, const unsigned char* a, const unsigned char* b, float* sums) {
  return launch(nullptr, {"wgmma_product", 1, 128}, product_kernel<kType, N, kLeft, kRight>, c, a, b, sums);
}

template <Factor kType>
cudaError_t run_type(const WgmmaCase& c, const unsigned char* a, const unsigned char* b, float* sums) {
  if (c.left_major == Major::rows || c.right_major == Major::rows) {
    if constexpr (kType != Factor::tf32) {
      if (c.left_major == Major::depth)
        return run_product<kType, 64, Major::depth, Major::rows>(c, a, b, sums);
      if (c.right_major == Major::depth)
        return run_product<kType, 64, Major::rows, Major::depth>(c, a, b, sums);
      return run_product<kType, 64, Major::rows, Major::rows>(c, a, b, sums);
    }
    return cudaErrorInvalidValue;
  }
  switch (c.columns) {
    case 8: return run_product<kType, 8, Major::depth, Major::depth>(c, a, b, sums);
    case 64: return run_product<kType, 64, Major::depth, Major::depth>(c, a, b, sums);
    case 256: return run_product<kType, 256, Major::depth, Major::depth>(c, a, b, sums);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t wgmma_product(Factor type, const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                          float* sums) {
  switch (type) {
    case Factor::f16: return run_type<Factor::f16>(c, a, b, sums);
    case Factor::bf16: return run_type<Factor::bf16>(c, a, b, sums);
    case Factor::tf32: return run_type<Factor::tf32>(c, a, b, sums);
    case Factor::u8: break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t wgmma_gemm(Release when, const TensorMap& a, const TensorMap& b, int tiles, float* y) {
  const auto kernel = when == Release::in_time           ? &gemm_kernel<Release::in_time>
                      : when == Release::before_the_wait ? &gemm_kernel<Release::before_the_wait>
                                                         : &gemm_kernel<Release::one_group_too_soon>;
  return launch(nullptr, {"wgmma_gemm", 1, 160}, kernel, a, b, tiles, y);
}

#define PLANTED(name)                                                                  \
  cudaError_t name(float* out) {                                                       \
    const unsigned threads = Bug::name == Bug::wgmma_part_of_a_group ? 96 : 128;       \
    return launch(nullptr, {#name, 1, threads, 2304}, planted_kernel<Bug::name>, out); \
  }
SIMT_WARPGROUP_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
