#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#include "kernels/context.h"
#include "tensor/cuda/runtime.h"

// How our kernels are launched: by one function, without <<<>>> and without extern __shared__, so that g++
// compiles the same files against the emulator in kernels/simt/.

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

/// Queues a kernel on the context's stream. Arguments are converted to the kernel's parameter types. An empty
/// grid launches nothing. More than 48 KiB of dynamic shared memory is asked for by itself.
template <class... P, class... A>
void launch(const CudaContext& context, const Launch& how, void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A));
  if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0) return;
  std::tuple<P...> parameters(std::forward<A>(args)...);
#if defined(__CUDACC__)
  const auto address = reinterpret_cast<const void*>(kernel);
  if (how.shared_bytes > 48 * 1024) {
    ATH_TRY(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(how.shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = static_cast<cudaStream_t>(context.native_stream());
  std::apply(
      [&](P&... parameter) {
        void* pointers[] = {static_cast<void*>(&parameter)..., nullptr};
        detail::check_launch(cudaLaunchKernelExC(&config, address, pointers), how.name);
      },
      parameters);
#else
  simt::launch(how.name, kernel, how.grid, how.block, how.shared_bytes,
               static_cast<cudaStream_t>(context.native_stream()), std::move(parameters));
#endif
}

/// Blocks of `threads` that cover `work` items, or as many as fill the device `waves` times; a kernel then
/// strides by the grid.
inline unsigned blocks_for(const CudaContext& context, std::int64_t work, int threads, int waves = 8) {
  const std::int64_t wanted = (work + threads - 1) / threads;
  const std::int64_t full = std::int64_t{context.multiprocessors()} * waves;
  return static_cast<unsigned>(wanted < full ? wanted : full);
}

}  // namespace athanor::cuda
