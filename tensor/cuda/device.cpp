#include "tensor/cuda/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "simt/emulation.h"
#include "tensor/detail/device_memory.h"
#include "tensor/detail/stream_state.h"
#include "tensor/stream.h"

namespace athanor {
namespace {

struct Found {
  DeviceInfo info;
  std::string why_not;  // empty: usable
};

struct Devices {
  std::vector<Found> found;
  std::string why_none;
};

#if !defined(ATHANOR_CUDA_CODE_FOR)
#define ATHANOR_CUDA_CODE_FOR "all"
#endif

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
    for (int i = 0; i < std::min(count, detail::kMaxDevices); ++i) {
      const DeviceInfo info = describe(i);
      const bool has_code = cuda::has_code_for(ATHANOR_CUDA_CODE_FOR, info.major, info.minor);
      devices.found.push_back({info, has_code ? "" : cuda::explain_no_code(info, ATHANOR_CUDA_CODE_FOR)});
    }
    const auto is_usable = [](const Found& each) { return each.why_not.empty(); };
    if (std::none_of(devices.found.begin(), devices.found.end(), is_usable)) {
      devices.why_none = devices.found.front().why_not;
      devices.found.clear();
    }
  } catch (const BackendError& error) {
    devices.found.clear();
    devices.why_none = error.what();
  }
  return devices;
}

// Queried once: drivers do not change while a process runs.
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
        "no NVIDIA driver was found: install one that supports CUDA {} (a container must expose it), {}",
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
                       visible ? fmt::format("currently '{}'", visible) : "not set", kElse);
  }
  return fmt::format("CUDA failed to initialize: {}: {}; check nvidia-smi, {}", cudaGetErrorName(status),
                     cudaGetErrorString(status), kElse);
}

// The runtime has no such query, and the driver library is not linked, since programs must start without it.
bool cuda::has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* active);
  static const GetState get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function,
                                                                12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<GetState>(function)
               : nullptr;
  }();
  unsigned flags = 0;
  int active = 1;
  return !get_state || get_state(device, &flags, &active) != 0 || active != 0;
}

bool cuda::has_code_for(std::string_view architectures, int major, int minor) {
  const int sm = 10 * major + minor;
  while (!architectures.empty()) {
    const std::string_view word = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(std::min(architectures.size(), word.size() + 1));
    int built = 0;
    const auto [after, error] = std::from_chars(word.data(), word.data() + word.size(), built);
    if (error != std::errc()) return true;
    const std::string_view kind = word.substr(static_cast<std::size_t>(after - word.data()));
    const bool same_major = built / 10 == major && built <= sm;
    const bool is_ptx = kind.empty() || kind == "-virtual";
    if (kind.starts_with('a') ? built == sm : is_ptx ? built <= sm : same_major) return true;
  }
  return false;
}

std::string cuda::explain_no_code(const DeviceInfo& info, std::string_view architectures) {
  return fmt::format(
      "no code for sm_{0} ({1}) is in this build, only for {2}: configure with "
      "-DATHANOR_CUDA_ARCHITECTURES={0}{3}-real, or use --device cpu",
      info.sm(), info.name, architectures, info.sm() == 90 ? "a" : "");
}

int cuda_device_count() {
  return static_cast<int>(devices().found.size());
}

const std::string& why_no_cuda() {
  return devices().why_none;
}

bool cuda_is_emulated() {
  return simt::kEmulated;
}

const char* detail::cuda_device_name() {
  return cuda_is_emulated() ? "simt" : "cuda";
}

void detail::check_device(Device device) {
  const int count = cuda_device_count();
  if (device.is_cuda() && device.index >= 0 && device.index < count) [[likely]] {
    const std::string& why_not = devices().found[static_cast<std::size_t>(device.index)].why_not;
    if (why_not.empty()) [[likely]]
      return;
    fail<BackendError>("device: {} cannot be used: {}", device.str(), why_not);
  }
  if (count == 0) fail<BackendError>("device: {} is not available: {}", device.str(), why_no_cuda());
  fail<BackendError>("device: {} does not exist: this process sees {} of them, numbered from 0", device.str(),
                     count);
}

const DeviceInfo& device_info(Device device) {
  detail::check_device(device);
  return devices().found[static_cast<std::size_t>(device.index)].info;
}

}  // namespace athanor
