#pragma once

#include <bit>
#include <cstdint>

#include <cuda_runtime.h>

#include "simt/fragments.h"
#include "simt/launch.h"
#include "simt/tensor_map.h"
#include "simt/wgmma.h"

// Kernels for tests of tensor cores and asynchronous copies: good ones, and planted ones with one bug each,
// whose lines are marked as those of planted.cu.

namespace simt::test {

/// As a factor of that type; of one of 16 bits, the lower half.
inline std::uint32_t bits_of(Factor type, float x) {
  if (type == Factor::tf32) return std::bit_cast<std::uint32_t>(x);
  if (type == Factor::bf16) return std::bit_cast<std::uint32_t>(x) >> 16;
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
}

// tests/simt/matrices.cu. Of one warp. Registers are [32 lanes][number of them].
cudaError_t mma_registers(Factor type, const std::uint32_t* a, const std::uint32_t* b, float* c);
cudaError_t mma_registers(const std::uint32_t* a, const std::uint32_t* b, int* c);  ///< of Factor::u8
cudaError_t dots_of_bytes(int n, const std::uint32_t* a, const std::uint32_t* b,
                          int* c);  ///< c[i] += a[i] b[i]
cudaError_t ldmatrix_rows(int count, bool columns, int pitch_bytes, const std::uint16_t* x,
                          std::uint32_t* parts);
cudaError_t round_to_tf32(int n, const float* x, std::uint32_t* y);

cudaError_t ldmatrix_beyond(int offset, float* out);

// tests/simt/copies.cu. Planted ones have 128 floats.
cudaError_t reverse_tiles(int n, const float* x, float* y);  ///< each 64 floats, the rest with zeros
cudaError_t copy_words(const float* x, float* y);            ///< 224 floats, neighbours exchanged
cudaError_t cp_async_source_changes(float* out);
cudaError_t cp_async_from_shared(float* out);
cudaError_t cp_async_beyond(int offset, const float* x, float* out);

// tests/simt/bulk.cu. Planted ones have 128 floats.
cudaError_t ring(int tiles, const float* x, float* y);  ///< each 64 floats reversed
cudaError_t bring_tile(const TensorMap& from, unsigned bytes, const int (&at)[3], int rank,
                       unsigned char* shown);

// tests/simt/warpgroups.cu. Planted ones write 128 floats.
struct WgmmaCase {
  Swizzle swizzle;
  Major left_major, right_major;
  int columns, steps, left_step, right_step;  ///< steps in bytes
  unsigned left_leading, left_stride, right_leading, right_stride;
  unsigned left_bytes, right_bytes;  ///< of shared memory, up to 8192 and 32768
  bool accumulate;
};
/// Sums are [128 threads][columns / 2].
cudaError_t wgmma_product(Factor type, const WgmmaCase& c, const unsigned char* a, const unsigned char* b,
                          float* sums);
/// When a stage is given back to the one who fills it.
enum class Release { in_time, before_the_wait, one_group_too_soon };
cudaError_t wgmma_gemm(Release when, const TensorMap& a, const TensorMap& b, int tiles, float* y);

// Planted ones, of 128 floats at most: of copies.cu with the threads of each.
#define SIMT_BULK_BUGS(X)  \
  X(bulk_no_init_fence)    \
  X(bulk_no_wait)          \
  X(bulk_nobody_waits)     \
  X(bulk_expects_nothing)  \
  X(bulk_expects_too_much) \
  X(bulk_by_all)           \
  X(bulk_over_reader)      \
  X(bulk_over_writes)      \
  X(bulk_misaligned)       \
  X(bulk_odd_size)
#define SIMT_TENSOR_MAP_BUGS(X) X(tensor_misaligned) X(tensor_wrong_rank) X(tensor_expects_inside)
#define SIMT_COPY_BUGS(X)           \
  X(cp_async_no_wait, 32)           \
  X(cp_async_no_commit, 32)         \
  X(cp_async_one_group_too_few, 32) \
  X(cp_async_no_barrier, 64)        \
  X(cp_async_over_reader, 64)       \
  X(cp_async_misaligned, 32)        \
  X(cp_async_too_long, 32)
#define SIMT_LDMATRIX_BUGS(X) \
  X(ldmatrix_divergent)       \
  X(ldmatrix_two_places)      \
  X(ldmatrix_of_a_part)       \
  X(ldmatrix_misaligned)      \
  X(ldmatrix_global)          \
  X(ldmatrix_local)
#define SIMT_MATRIX_BUGS(X)       \
  X(ldmatrix_two_forms)           \
  X(ldmatrix_no_syncwarp)         \
  X(ldmatrix_columns_no_syncwarp) \
  X(ldmatrix_unwritten)           \
  X(mma_divergent)
#define SIMT_BARRIER_BUGS(X) \
  X(mbarrier_uninitialised)  \
  X(mbarrier_init_twice)     \
  X(mbarrier_no_barrier)     \
  X(mbarrier_lacks_arrivals) \
  X(mbarrier_wrong_parity)   \
  X(mbarrier_no_wait)        \
  X(mbarrier_writes_after_arrival)
#define SIMT_WARPGROUP_BUGS(X) \
  X(wgmma_right)               \
  X(wgmma_no_fence)            \
  X(wgmma_no_second_fence)     \
  X(wgmma_no_wait)             \
  X(wgmma_no_commit)           \
  X(wgmma_touches_sums)        \
  X(wgmma_no_proxy_fence)      \
  X(wgmma_factor_changes)      \
  X(wgmma_part_of_a_group)     \
  X(wgmma_one_warp_less)       \
  X(wgmma_two_factors)         \
  X(wgmma_one_lane_less)       \
  X(wgmma_second_line)         \
  X(wgmma_no_distance)
#define DECLARE(name, ...) cudaError_t name(float* out);
SIMT_BULK_BUGS(DECLARE)
SIMT_TENSOR_MAP_BUGS(DECLARE)
SIMT_COPY_BUGS(DECLARE)
SIMT_LDMATRIX_BUGS(DECLARE)
SIMT_MATRIX_BUGS(DECLARE)
SIMT_BARRIER_BUGS(DECLARE)
SIMT_WARPGROUP_BUGS(DECLARE)
#undef DECLARE

}  // namespace simt::test
