#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "simt/launch.h"
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

// What the host needs beside a kernel. The same for nvcc and for the emulator.

namespace engine {

/// Throws std::runtime_error with what CUDA says, or the emulator's diagnosis.
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// Memory of the device that is freed with this object.
template <class T> class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count_ * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
    check(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  /// Waits for the kernels that were launched, and throws if one of them failed.
  std::vector<T> values() const {
    check(cudaDeviceSynchronize(), "the kernel");
    std::vector<T> result(count_);
    check(cudaMemcpy(result.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return result;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// launch({"my_kernel", grid, block}, my_kernel, arguments...): as my_kernel<<<grid, block>>>(arguments...),
/// for both compilers.
template <class... P, class... A>
void launch(const simt::Launch& how, void (*kernel)(P...), A&&... arguments) {
  check(simt::launch(nullptr, how, kernel, std::forward<A>(arguments)...), how.name);
}

/// The bits of the nearest f16, ties to even, by the compiler. In stage 7 you write this yourself.
inline std::uint16_t f16_bits(float x) {
#if defined(__CUDACC__)
  return __half_as_ushort(__float2half_rn(x));
#else
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
#endif
}

}  // namespace engine
