#pragma once

// For a GPU and for the emulator; otherwise empty.
#if defined(ATHANOR_WITH_CUDA) || defined(OWN_OP_EMULATES)
#include <cstdint>

#include <cuda_runtime.h>

// Arrays of n elements in device memory.
cudaError_t soft_shrink_forward(std::int64_t n, float lambda, const float* x, float* y, cudaStream_t stream);
cudaError_t soft_shrink_backward(std::int64_t n, float lambda, const float* x, const float* dy, float* dx,
                                 cudaStream_t stream);
#endif
