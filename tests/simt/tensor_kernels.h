#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "simt/fragments.h"
#include "simt/launch.h"

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

}  // namespace simt::test
