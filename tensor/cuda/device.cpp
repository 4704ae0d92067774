#include "tensor/cuda/device.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tensor/detail/device_memory.h"
#include "tensor/detail/stream_state.h"
#include "tensor/stream.h"

namespace athanor {
namespace {

struct Devices {
  std::vector<DeviceInfo> found;
  std::string why_none;
};

DeviceInfo describe(int index) {
  cudaDeviceProp properties{};
  ATH_TRY(cudaGetDeviceProperties(&properties, index));
  DeviceInfo info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  info.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  return info;
}

Devices find_devices() {
  Devices devices;
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (status != cudaSuccess || count == 0) {
    devices.why_none = cuda::explain_no_device(status, driver, runtime);
    return devices;
  }
  try {
    for (int i = 0; i < std::min(count, detail::kMaxDevices); ++i) devices.found.push_back(describe(i));
  } catch (const BackendError& error) {
    devices.found.clear();
    devices.why_none = error.what();
  }
  return devices;
}

// Asked once: a driver does not come or go while a process runs.
const Devices& devices() {
  static const Devices* const instance = new Devices(find_devices());
  return *instance;
}

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

std::string cuda::explain_no_device(cudaError_t status, int driver, int runtime) {
  constexpr std::string_view kElse = "or use --device cpu";
  if (status == cudaErrorInsufficientDriver && driver == 0) {
    return fmt::format(
        "no NVIDIA driver was found: install one that supports CUDA {} (a container needs it passed "
        "through), "
        "{}",
        version(runtime), kElse);
  }
  if (status == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this build needs {}; update the driver, {}",
        version(driver), version(runtime), kElse);
  }
  if (status == cudaErrorNoDevice || status == cudaSuccess) {
    if (cuda_is_emulated()) return fmt::format("the emulator has no device: unset SIMT_DEVICES, {}", kElse);
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return fmt::format("the NVIDIA driver shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES ({}), {}",
                       visible ? fmt::format("now '{}'", visible) : "not set", kElse);
  }
  return fmt::format("CUDA does not start: {}: {}; check nvidia-smi, {}", cudaGetErrorName(status),
                     cudaGetErrorString(status), kElse);
}

int cuda_device_count() {
  return static_cast<int>(devices().found.size());
}

const std::string& why_no_cuda() {
  return devices().why_none;
}

bool cuda_is_emulated() {
#if defined(ATHANOR_SIMT)
  return true;
#else
  return false;
#endif
}

const char* detail::cuda_device_name() {
  return cuda_is_emulated() ? "simt" : "cuda";
}

void detail::check_device(Device device) {
  const int count = cuda_device_count();
  if (device.is_cuda() && device.index >= 0 && device.index < count) [[likely]]
    return;
  if (count == 0) fail<BackendError>("device: {} is not there: {}", device.str(), why_no_cuda());
  fail<BackendError>("device: {} is not there: this process sees {} of them, numbered from 0", device.str(),
                     count);
}

const DeviceInfo& device_info(Device device) {
  detail::check_device(device);
  return devices().found[static_cast<std::size_t>(device.index)];
}

}  // namespace athanor
