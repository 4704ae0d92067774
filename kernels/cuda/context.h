#pragma once

#include <cstddef>
#include <memory>

#include "kernels/context.h"
#include "kernels/scratch.h"

namespace athanor {

namespace cuda {
class Vendor;  // kernels/cuda/vendor.h
}

/// The state of CUDA kernels: this thread's current stream on one device. One per host thread and device;
/// cuda_context(device) is this thread's.
class CudaContext : public ContextBase {
 public:
  explicit CudaContext(Device device);
  ~CudaContext();

  Device device() const { return device_; }
  /// Compute capability, 90 for sm_90.
  int sm() const { return sm_; }
  int multiprocessors() const { return multiprocessors_; }
  /// cuBLASLt and cuDNN may round f32 inputs to 10 fraction bits (TF32) to use tensor cores.
  bool tf32 = false;

  /// The cudaStream_t that kernels use: that of current_stream(device()).
  void* native_stream() const;

  /// Device memory, valid for the work queued in this scope.
  Scratch scratch(std::size_t bytes) const { return Scratch(bytes, device_); }
  /// Handles, plans and workspace of cuBLASLt and cuDNN.
  cuda::Vendor& vendor();

 private:
  Device device_;
  int sm_ = 0, multiprocessors_ = 1;
  std::unique_ptr<Scratch> own_step_memory_;
  std::unique_ptr<cuda::Vendor> vendor_;
};

/// A GPU's context of the calling thread, which becomes current there. Throws ArgumentError if the device is
/// no GPU.
CudaContext& cuda_context(Device device);

}  // namespace athanor
