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

namespace detail {

/// For which kernels and devices something has been done. A later kernel may take an earlier one's place, for
/// which it is then done again.
class SeenKernels {
 public:
  bool has(const void* kernel, int device) const {
    const Entry& entry = entries_[place(kernel, device)];
    return entry.kernel == kernel && entry.device == device;
  }
  void add(const void* kernel, int device) { entries_[place(kernel, device)] = {kernel, device}; }

 private:
  static constexpr std::size_t kEntries = 64;
  struct Entry {
    const void* kernel = nullptr;
    int device = 0;
  };
  static std::size_t place(const void* kernel, int device) {
    return (reinterpret_cast<std::size_t>(kernel) / 16 + static_cast<std::size_t>(device)) % kEntries;
  }

  Entry entries_[kEntries];
};

}  // namespace detail

#if defined(__CUDACC__)
namespace detail {

/// Lets a kernel have all dynamic shared memory that the current device has beside its static memory: not
/// only what this launch asks for, or threads would lower it for one another. Once for each thread, kernel
/// and device.
inline cudaError_t allow_large_shared_memory(const void* kernel) {
  thread_local SeenKernels allowed;
  int device = 0, most = 0;
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess || allowed.has(kernel, device)) return status;
  status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  most - static_cast<int>(attributes.sharedSizeBytes));
  if (status == cudaSuccess) allowed.add(kernel, device);
  return status;
}

/// Queues the kernel at that address; `arguments` point to what it is called with.
inline cudaError_t queue_kernel(cudaStream_t stream, const Launch& how, const void* kernel,
                                void** arguments) {
  if (how.shared_bytes > 48 * 1024) {
    const cudaError_t status = allow_large_shared_memory(kernel);
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
