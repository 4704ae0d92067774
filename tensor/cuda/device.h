#pragma once

#include <string>

#include "tensor/cuda/runtime.h"
#include "tensor/device.h"

namespace athanor::cuda {

/// Makes `device` the one that calls without a stream mean, and puts the old one back.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    ATH_TRY(cudaGetDevice(&saved_));
    if (saved_ == device.index) {
      saved_ = kUnchanged;
    } else {
      ATH_TRY(cudaSetDevice(device.index));
    }
  }
  ~DeviceGuard() {
    if (saved_ != kUnchanged) cudaSetDevice(saved_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  static constexpr int kUnchanged = -1;
  int saved_ = kUnchanged;
};

/// Why there is no device, and what to do: of what cudaGetDeviceCount said, and the versions (1000 major +
/// 10 minor) of CUDA that the driver, 0 if there is none, and this build support.
std::string explain_no_device(cudaError_t status, int driver, int runtime);

}  // namespace athanor::cuda
