#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "simt/fragments.h"
#include "simt/launch.h"
#include "simt/tensor_map.h"
#include "simt/wgmma.h"

// Kernels for tests of tensor cores and asynchronous copies: good ones, and planted ones with one bug each,
// whose lines are marked as those of planted.cu.

namespace simt::test {

// tests/simt/matrices.cu. Of one warp. Registers are [32 lanes][number of them].
cudaError_t mma_registers(Factor type, const std::uint32_t* a, const std::uint32_t* b, float* c);
cudaError_t ldmatrix_rows(int count, bool columns, int pitch_bytes, const std::uint16_t* x,
                          std::uint32_t* parts);
cudaError_t stmatrix_rows(int count, bool columns, const std::uint32_t* parts, std::uint16_t* x);
cudaError_t round_to_tf32(int n, const float* x, std::uint32_t* y);

cudaError_t ldmatrix_divergent(float* out);
cudaError_t ldmatrix_two_places(float* out);
cudaError_t ldmatrix_two_forms(float* out);
cudaError_t ldmatrix_of_a_part(float* out);
cudaError_t ldmatrix_misaligned(float* out);
cudaError_t ldmatrix_global(float* out);
cudaError_t ldmatrix_local(float* out);
cudaError_t ldmatrix_no_syncwarp(float* out);
cudaError_t ldmatrix_columns_no_syncwarp(float* out);
cudaError_t ldmatrix_unwritten(float* out);
cudaError_t ldmatrix_beyond(int offset, float* out);
cudaError_t stmatrix_no_syncwarp(float* out);
cudaError_t stmatrix_over_reader(float* out);
cudaError_t mma_divergent(float* out);

// tests/simt/copies.cu. Planted ones have 128 floats.
cudaError_t reverse_tiles(int n, const float* x, float* y);  ///< each 64 floats, the rest with zeros
cudaError_t copy_words(const float* x, float* y);            ///< 224 floats, neighbours exchanged
cudaError_t cp_async_no_wait(float* out);
cudaError_t cp_async_no_commit(float* out);
cudaError_t cp_async_one_group_too_few(float* out);
cudaError_t cp_async_no_barrier(float* out);
cudaError_t cp_async_over_reader(float* out);
cudaError_t cp_async_source_changes(float* out);
cudaError_t cp_async_misaligned(float* out);
cudaError_t cp_async_from_shared(float* out);
cudaError_t cp_async_too_long(float* out);
cudaError_t cp_async_beyond(int offset, const float* x, float* out);

// tests/simt/bulk.cu. Planted ones have 128 floats.
cudaError_t ring(int tiles, const float* x, float* y);  ///< each 64 floats reversed
cudaError_t bulk_stores(bool all_fence, float* y);      ///< 128 floats: 0, 1, ...
cudaError_t bring_tile(const TensorMap& from, const TensorMap& to, unsigned bytes, const int (&at)[3],
                       int rank, unsigned char* shown);
cudaError_t mbarrier_uninitialised(float* out);
cudaError_t mbarrier_init_twice(float* out);
cudaError_t mbarrier_no_barrier(float* out);
cudaError_t mbarrier_lacks_arrivals(float* out);
cudaError_t mbarrier_wrong_parity(float* out);
cudaError_t mbarrier_no_wait(float* out);
cudaError_t mbarrier_writes_after_arrival(float* out);
cudaError_t mbarrier_asks_in_vain(float* out);
cudaError_t bulk_no_init_fence(float* out);
cudaError_t bulk_no_wait(float* out);
cudaError_t bulk_nobody_waits(float* out);
cudaError_t bulk_expects_nothing(float* out);
cudaError_t bulk_expects_too_much(float* out);
cudaError_t bulk_by_all(float* out);
cudaError_t bulk_over_reader(float* out);
cudaError_t bulk_over_writes(float* out);
cudaError_t bulk_misaligned(float* out);
cudaError_t bulk_odd_size(float* out);
cudaError_t bulk_store_no_fence(float* out);
cudaError_t bulk_store_wrong_fence(float* out);
cudaError_t bulk_store_no_wait(float* out);
cudaError_t bulk_store_reuse(float* out);
cudaError_t bulk_store_result(float* out);
cudaError_t tensor_misaligned(float* out);
cudaError_t tensor_wrong_rank(float* out);
cudaError_t tensor_expects_inside(float* out);

// tests/simt/warpgroups.cu. Planted ones write 128 floats.
struct WgmmaCase {
  Swizzle swizzle;
  Major left_major, right_major;
  int columns, steps, left_step, right_step;  ///< steps in bytes
  unsigned left_leading, left_stride, right_leading, right_stride;
  unsigned left_bytes, right_bytes;  ///< of shared memory, up to 8192 and 32768
  bool from_registers, accumulate;
};
/// Sums are [128 threads][columns / 2], registers [steps][128][4].
cudaError_t wgmma_product(Factor type, const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                          const std::uint32_t* registers, float* sums);
/// When a stage is given back to the one who fills it.
enum class Release { in_time, before_the_wait, one_group_too_soon };
cudaError_t wgmma_gemm(Release when, const TensorMap& a, const TensorMap& b, int tiles, float* y);
cudaError_t wgmma_right(float* out);
cudaError_t wgmma_no_fence(float* out);
cudaError_t wgmma_no_second_fence(float* out);
cudaError_t wgmma_no_wait(float* out);
cudaError_t wgmma_no_commit(float* out);
cudaError_t wgmma_touches_sums(float* out);
cudaError_t wgmma_no_proxy_fence(float* out);
cudaError_t wgmma_factor_changes(float* out);
cudaError_t wgmma_one_warp_less(float* out);
cudaError_t wgmma_two_factors(float* out);
cudaError_t wgmma_one_lane_less(float* out);
cudaError_t wgmma_second_line(float* out);
cudaError_t wgmma_no_distance(float* out);
cudaError_t wgmma_part_of_a_group(float* out);

}  // namespace simt::test
