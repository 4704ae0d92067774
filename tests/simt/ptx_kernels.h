#pragma once

#include <cuda_runtime.h>

// Launches of ptx_kernels.cu.

namespace simt::test {

cudaError_t run_chosen(int* out, unsigned threads);
cudaError_t run_reversed(const float* x, float* y, unsigned dynamic_bytes);
cudaError_t run_spelled(int* out);
cudaError_t run_in_no_namespace(int* out);
cudaError_t run_narrower(int* out);
cudaError_t run_misaligned(int* out);
cudaError_t run_absent(int* out);

}  // namespace simt::test
