#include <cstdio>
#include <cstring>

#include "simt/emulator/graph.h"
#include "simt/emulator/runtime.h"

// Devices. They have few multiprocessors, so that grids sized by them stay small, and the limits of sm_90.

using namespace simt;

namespace {

constexpr int kVersion = 13000;
constexpr int kMultiprocessors = 4;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr std::size_t kSharedPerMultiprocessor = 228 * 1024;

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof(p.name), "SIMT emulator %d", device);
  p.totalGlobalMem = options().memory_bytes;
  p.sharedMemPerBlock = kSharedBytesPerBlock;
  p.sharedMemPerBlockOptin = kSharedBytesPerBlockOptin;
  p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  p.regsPerBlock = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = 9;
  p.multiProcessorCount = kMultiprocessors;
  p.l2CacheSize = 1 << 20;  // as small as may be: what measures kernels reads twice as much before each
  p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  return p;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return api_call("cudaGetDeviceCount", [&](Runtime& all) {
    *count = all.device_count();
    if (*count == 0) all.device(0);
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api_call<Faults::not_reported>("cudaSetDevice", [&](Runtime& all) {
    all.device(device).has_context = true;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api_call("cudaGetDeviceProperties", [&](Runtime& all) {
    all.device(device);
    *properties = properties_of(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = kHighestPriority;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return api_call("cudaDeviceSynchronize", [&](Runtime& all) {
    all.device(current_device());
    forbid_in_capture(all);
    all.run_everything(current_device());
    return cudaSuccess;
  });
}

// Work that is queued is dropped, and a fault forgotten; memory and handles stay, for their owners are alive.
cudaError_t cudaDeviceReset() {
  return api_call<Faults::reported_after>("cudaDeviceReset", [&](Runtime& all) {
    Device& device = all.device(current_device());
    all.fault(current_device(), "cudaDeviceReset");
    device.fault.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  return api_call("cudaFuncSetAttribute", [&](Runtime&) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
        (value < 0 || static_cast<std::size_t>(value) > kSharedBytesPerBlockOptin)) {
      throw Failure{cudaErrorInvalidValue, "a block has at most 227 KiB of shared memory"};
    }
    return cudaSuccess;
  });
}

// ---- the driver

namespace {
// A CUresult: 0 for success, 101 for a device that is none.
int context_state(int device, unsigned* flags, int* active) {
  Runtime& all = runtime();
  const auto guard = all.lock();
  if (device < 0 || device >= all.device_count()) return 101;
  *flags = 0;
  *active = all.device(device).has_context;
  return 0;
}
}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(&context_state) : nullptr;
  if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
