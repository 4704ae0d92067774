#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

// One way to launch for both compilers, without <<<>>> and without extern __shared__: nvcc compiles a .cu
// file for a GPU, and g++ the same file for the emulator. This header needs nothing but <cuda_runtime.h>.

namespace simt {

struct Launch {
  const char* name;  ///< of the kernel, for errors and counters; must stay
  dim3 grid{1}, block{1};
  std::size_t shared_bytes = 0;  ///< dynamic
};

/// This block's dynamic shared memory, 16-byte aligned.
template <class T> __device__ __forceinline__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char simt_dynamic_shared[];
  return reinterpret_cast<T*>(simt_dynamic_shared);
#else
  return static_cast<T*>(dynamic_shared_memory());
#endif
}

#if defined(__CUDACC__)
namespace detail {
/// Queues the kernel at that address; `arguments` point to what it is called with.
inline cudaError_t queue_kernel(cudaStream_t stream, const Launch& how, const void* kernel,
                                void** arguments) {
  if (how.shared_bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(how.shared_bytes));
    if (status != cudaSuccess) return status;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}
}  // namespace detail
#endif

/// Queues a kernel on the stream; null is the default stream. Arguments are converted to the kernel's
/// parameter types. An empty grid launches nothing. More than 48 KiB of dynamic shared memory is asked for by
/// itself. Errors of the configuration are returned; those of the kernel itself by a later call.
template <class... P, class... A>
cudaError_t launch(cudaStream_t stream, const Launch& how, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel takes as many arguments as it has parameters");
  if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0) return cudaSuccess;
  return [&](P... parameter) {
    void* pointers[] = {static_cast<void*>(&parameter)..., nullptr};
#if defined(__CUDACC__)
    return detail::queue_kernel(stream, how, reinterpret_cast<const void*>(kernel), pointers);
#else
    return launch_kernel(stream, how, detail::kernel_of(kernel), pointers);
#endif
  }(std::forward<A>(arguments)...);
}

}  // namespace simt
