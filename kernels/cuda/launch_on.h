#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

// One way to launch for both compilers: without <<<>>> and without extern __shared__, so that g++ compiles
// the same files against the emulator in kernels/simt/. Needs nothing of the library: examples/kernel_lab/
// uses it alone.

namespace athanor::cuda {

struct Launch {
  const char* name;  ///< of the kernel, for errors, the trace and the counters
  dim3 grid{1}, block{1};
  std::size_t shared_bytes = 0;  ///< dynamic
};

/// This block's dynamic shared memory, 16-byte aligned.
template <class T> __device__ __forceinline__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char athanor_dynamic_shared[];
  return reinterpret_cast<T*>(athanor_dynamic_shared);
#else
  return static_cast<T*>(simt::dynamic_shared_memory());
#endif
}

/// Queues a kernel on the stream. Arguments are converted to the kernel's parameter types. An empty grid
/// launches nothing. More than 48 KiB of dynamic shared memory is asked for by itself.
template <class... P, class... A>
cudaError_t launch_on(cudaStream_t stream, const Launch& how, void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A));
  if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0) return cudaSuccess;
  std::tuple<P...> parameters(std::forward<A>(args)...);
  const auto address = reinterpret_cast<const void*>(kernel);
  if (how.shared_bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(how.shared_bytes));
    if (status != cudaSuccess) return status;
  }
#if defined(__CUDACC__)
  cudaLaunchConfig_t config{};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = stream;
  return std::apply(
      [&](P&... parameter) {
        void* pointers[] = {static_cast<void*>(&parameter)..., nullptr};
        return cudaLaunchKernelExC(&config, address, pointers);
      },
      parameters);
#else
  return simt::launch(how.name, kernel, how.grid, how.block, how.shared_bytes, stream, std::move(parameters));
#endif
}

}  // namespace athanor::cuda
