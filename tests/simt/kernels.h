#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "simt/launch.h"

// Kernels for tests of the emulator. Good ones must be clean in every order and in every build; planted ones
// hold one bug each.

namespace simt::test {

// Good, tests/simt/good.cu.
cudaError_t weigh(const float (&weights)[2], float* x, float (&sums)[2]);  ///< 64 floats
cudaError_t axpy(std::int64_t n, float a, const float* x, float* y, cudaStream_t stream, unsigned blocks = 4);
cudaError_t row_sum(unsigned rows, int cols, const float* x, float* y, cudaStream_t stream);
cudaError_t softmax(unsigned rows, int cols, const float* x, float* y, cudaStream_t stream);
cudaError_t matmul(int m, int n, int k, const float* a, const float* b, float* c, cudaStream_t stream);
cudaError_t warp_functions(unsigned* out, cudaStream_t stream);
cudaError_t block_votes(int* out, cudaStream_t stream);
cudaError_t count(unsigned blocks, unsigned threads, int* total, cudaStream_t stream);
cudaError_t fill(std::int64_t n, float value, float* y, cudaStream_t stream);
cudaError_t neighbours(float* out, cudaStream_t stream);
cudaError_t bytes(std::uint8_t* out, cudaStream_t stream);
cudaError_t half_warps(float* out, cudaStream_t stream);
cudaError_t half_then_all(unsigned* out, cudaStream_t stream);
cudaError_t broadcast(const float* x, float* y, cudaStream_t stream);  ///< 64 floats of x[0]
cudaError_t two_ways(float* out, cudaStream_t stream);
cudaError_t shuffle_and_syncwarp(float* out, cudaStream_t stream);
cudaError_t order_of_threads(unsigned blocks, unsigned threads, int* order, int* next, cudaStream_t stream);

// Planted, tests/simt/planted.cu, by so many threads of a block. They write to at most 128 floats.
#define SIMT_PLANTED(X)         \
  X(divergent_barrier, 64)      \
  X(early_return, 64)           \
  X(wrong_mask, 64)             \
  X(mask_without_self, 32)      \
  X(lane_outside_mask, 32)      \
  X(different_collectives, 32)  \
  X(barrier_and_collective, 32) \
  X(mask_of_the_gone, 32)       \
  X(dynamic_race, 64)           \
  X(two_writers, 64)            \
  X(bytes_race, 64)             \
  X(shared_atomic, 64)          \
  X(warps_of_a_block, 64)       \
  X(uninitialised_dynamic, 64)  \
  X(uninitialised_static, 64)   \
  X(missing_barrier, 64)        \
  X(missing_second_barrier, 64) \
  X(barrier_in_helper, 64)      \
  X(barrier_in_function, 64)    \
  X(shuffle_in_helper, 64)      \
  X(missing_syncwarp, 64)       \
  X(shuffle_is_no_barrier, 64)  \
  X(vote_is_no_barrier, 64)     \
  X(syncwarp_across_warps, 64)  \
  X(partial_mask, 32)           \
  X(plain_add, 32)              \
  X(atomic_and_plain, 32)       \
  X(misaligned_read, 1)         \
  X(misaligned_shared, 1)       \
  X(misaligned, 1)
// The same, which are told a count or an offset.
#define SIMT_PLANTED_AT(X) \
  X(beyond_global, 128)    \
  X(beyond_read, 64)       \
  X(negative, 64)          \
  X(beyond_pointer, 64)    \
  X(beyond_static, 64)     \
  X(beyond_dynamic, 64)
#define DECLARE(name, threads) cudaError_t name(float* out);
SIMT_PLANTED(DECLARE)
#undef DECLARE
#define DECLARE(name, threads) cudaError_t name(float* out, int at);
SIMT_PLANTED_AT(DECLARE)
#undef DECLARE
cudaError_t left_by_another_block(float* out);
cudaError_t two_blocks_one_cell(float* out);
cudaError_t blocks_one_variable(float* out);
cudaError_t memory_of_the_host(float* out);
cudaError_t through_struct(float* inside, float* out);

// Counted, tests/simt/counted.cu. n is a multiple of 32.
cudaError_t transpose_naive(int n, const float* x, float* y);
cudaError_t transpose_tiled(bool padded, int n, const float* x, float* y);
cudaError_t copy_vectors(const float4* x, float4* y);
/// The same 1,024 bytes by kernels/cuda/vec.h.
cudaError_t copy_packets(const float* x, float* y);
cudaError_t copy_packets(const std::uint8_t* x, std::uint8_t* y);
cudaError_t banks(float* out);
cudaError_t diverging(float* out);
cudaError_t uniform(float* out);
cudaError_t triangle(float* out);
cudaError_t halves(double* out);
cudaError_t atomics(unsigned threads, int* totals);
cudaError_t misaligned_reads(const float* x, float* y);

}  // namespace simt::test
