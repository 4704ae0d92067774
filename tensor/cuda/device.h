#pragma once

#include <string>
#include <string_view>

#include "tensor/cuda/runtime.h"
#include "tensor/device.h"
#include "tensor/stream.h"

namespace athanor::cuda {

/// Whether this process has begun to use a device: a context is some 300 MB of its memory.
bool has_context(int device);

/// Makes `device` the one that calls without a stream mean, and puts the old one back: unless that is a
/// device nobody has used yet, for cudaSetDevice would open a context there. (A thread that never chose a
/// device is on device 0 for CUDA. Who calls CUDA by himself, too, should choose his.)
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

/// Why there is no device, and what to do: of what cudaGetDeviceCount said, and the versions (1000 major +
/// 10 minor) of CUDA that the driver, 0 if there is none, and this build support.
std::string explain_no_device(cudaError_t status, int driver, int runtime);

/// Whether code that was built for `architectures` (CMake's CUDA_ARCHITECTURES, joined by commas) runs on a
/// device. 80-real is machine code: for 8.0 and later minor versions; 90a-real: for 9.0 alone; 100f-real: for
/// 10.0 and later minor versions. 80-virtual is PTX, for that and everything later (with a letter: as above);
/// 80 is both. Yes, where a word says nothing about it: all, native.
bool has_code_for(std::string_view architectures, int major, int minor);

/// What to do about a device without, in one line.
std::string explain_no_code(const DeviceInfo& info, std::string_view architectures);

}  // namespace athanor::cuda
