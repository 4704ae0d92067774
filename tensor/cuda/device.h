#pragma once

#include <string>
#include <string_view>

#include "tensor/cuda/runtime.h"
#include "tensor/device.h"
#include "tensor/stream.h"

namespace athanor::cuda {

/// Whether this process already uses a device: a context takes some 300 MB of its memory.
bool has_context(int device);

/// Makes `device` current for calls without a stream, and restores the previous device, unless that has no
/// context yet: cudaSetDevice would create one. (For CUDA, a thread that never chose a device is on device 0.
/// Code that also calls CUDA directly should choose its own.)
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    ATH_TRY(cudaGetDevice(&saved_));
    if (saved_ == device.index) {
      saved_ = kUnchanged;
      return;
    }
    if (!has_context(saved_)) saved_ = kUnchanged;
    ATH_TRY(cudaSetDevice(device.index));
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

/// Explains why there is no device and how to fix it, from cudaGetDeviceCount's status and the CUDA versions
/// (1000 major + 10 minor) of the driver (0 if there is none) and of this build.
std::string explain_no_device(cudaError_t status, int driver, int runtime);

/// Whether code built for `architectures` (CMake's CUDA_ARCHITECTURES, joined by commas) runs on a device.
/// 80-real is machine code: for 8.0 and later minor versions; 90a-real: for 9.0 alone; 100f-real: for 10.0
/// and later minor versions. 80-virtual is PTX, for that and everything later (with a letter: as above); 80
/// is both. True for words without a version: all, native.
bool has_code_for(std::string_view architectures, int major, int minor);

/// How to fix a device without code, in one line.
std::string explain_no_code(const DeviceInfo& info, std::string_view architectures);

}  // namespace athanor::cuda
