#pragma once

#include <cuda_runtime.h>

#include "tensor/base/status.h"

// The CUDA runtime with our error type. In a simt build <cuda_runtime.h> is the emulator's.

namespace athanor {

template <> struct detail::StatusTraits<cudaError_t> {
  static constexpr const char* library = "CUDA";
  static bool ok(cudaError_t status) { return status == cudaSuccess; }
  static std::string text(cudaError_t status) {
    cudaGetLastError();  // a failed launch is reported once
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  }
};

namespace cuda::detail {

inline void check_launch(cudaError_t status, const char* kernel) {
  if (status == cudaSuccess) [[likely]]
    return;
  athanor::detail::fail<BackendError>("CUDA: kernel {} failed to launch: {}", kernel,
                                      athanor::detail::StatusTraits<cudaError_t>::text(status));
}

}  // namespace cuda::detail
}  // namespace athanor
