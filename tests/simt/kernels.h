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

// Planted, tests/simt/planted.cu. They write to at most 128 floats.
cudaError_t divergent_barrier(float* out);
cudaError_t early_return(float* out);
cudaError_t wrong_mask(float* out);
cudaError_t mask_without_self(float* out);
cudaError_t lane_outside_mask(float* out);
cudaError_t different_collectives(float* out);
cudaError_t barrier_and_collective(float* out);
cudaError_t mask_of_the_gone(float* out);
cudaError_t left_by_another_block(float* out);
cudaError_t dynamic_race(float* out);
cudaError_t two_writers(float* out);
cudaError_t bytes_race(float* out);
cudaError_t shared_atomic(float* out);
cudaError_t warps_of_a_block(float* out);
cudaError_t uninitialised_dynamic(float* out);
cudaError_t uninitialised_static(float* out);
cudaError_t missing_barrier(float* out);
cudaError_t missing_second_barrier(float* out);
cudaError_t barrier_in_helper(float* out);
cudaError_t barrier_in_function(float* out);
cudaError_t shuffle_in_helper(float* out);
cudaError_t missing_syncwarp(float* out);
cudaError_t shuffle_is_no_barrier(float* out);
cudaError_t vote_is_no_barrier(float* out);
cudaError_t syncwarp_across_warps(float* out);
cudaError_t partial_mask(float* out);
cudaError_t plain_add(float* out);
cudaError_t two_blocks_one_cell(float* out);
cudaError_t atomic_and_plain(float* out);
cudaError_t blocks_one_variable(float* out);
cudaError_t memory_of_the_host(float* out);
cudaError_t beyond_global(float* out, int count);
cudaError_t beyond_static(float* out, int offset);
cudaError_t beyond_dynamic(float* out, int offset);
cudaError_t beyond_read(float* out, int offset);
cudaError_t negative(float* out, int offset);
cudaError_t beyond_pointer(float* out, int offset);
cudaError_t misaligned(float* out);
cudaError_t misaligned_read(float* out);
cudaError_t misaligned_shared(float* out);
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
