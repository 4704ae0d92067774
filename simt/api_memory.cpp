#include <fmt/format.h>

#include "simt/names.h"
#include "simt/runtime.h"

using namespace simt;

namespace {

const Allocation* require_range(const Runtime& all, const void* begin, std::size_t bytes, const char* what) {
  const Allocation* memory = all.find(begin);
  if (memory && static_cast<const char*>(begin) + bytes > memory->base + memory->bytes) {
    throw Failure{cudaErrorInvalidValue,
                  fmt::format("{} bytes of the {} lie beyond the end of its allocation of {} bytes ({}:{})",
                              static_cast<const char*>(begin) + bytes - (memory->base + memory->bytes), what,
                              memory->bytes, memory->site.file, memory->site.line)};
  }
  return memory;
}

bool on_device(const Allocation* memory) {
  return memory && memory->type == cudaMemoryTypeDevice;
}

// Checks both ends of a copy, and finds out its direction.
CopyWork checked_copy(const Runtime& all, CopyWork copy) {
  if (copy.width > copy.to_pitch || copy.width > copy.from_pitch) {
    throw Failure{cudaErrorInvalidValue, "rows overlap: the width exceeds the pitch"};
  }
  const auto bytes = [&](std::size_t pitch) {
    return copy.height == 0 ? 0 : pitch * (copy.height - 1) + copy.width;
  };
  if (bytes(1) == 0 || copy.width == 0) return copy;
  if (!copy.to || !copy.from) throw Failure{cudaErrorInvalidValue, "an address is null"};
  const bool to = on_device(require_range(all, copy.to, bytes(copy.to_pitch), "destination"));
  const bool from = on_device(require_range(all, copy.from, bytes(copy.from_pitch), "source"));
  const cudaMemcpyKind found = to ? (from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                  : (from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (copy.kind != cudaMemcpyDefault && copy.kind != found) {
    throw Failure{
        cudaErrorInvalidMemcpyDirection,
        fmt::format("the direction is {}, but the addresses are {}", copy_name(copy.kind), copy_name(found))};
  }
  copy.kind = found;
  return copy;
}

cudaError_t copy_async(const char* api, CopyWork copy, cudaStream_t handle) {
  return api_call(api, [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    const CopyWork checked = checked_copy(all, copy);
    all.queue(stream, {checked});
    // A copy to pageable memory is done when the call returns.
    if (checked.kind == cudaMemcpyDeviceToHost && !stream.capture && !all.find(checked.to))
      all.wait_for(stream);
    return cudaSuccess;
  });
}

cudaError_t allocate(const char* api, void** memory, std::size_t bytes, cudaMemoryType type,
                     const Site& site) {
  *memory = nullptr;
  return api_call(api, [&](Runtime& all) {
    all.device(current_device());
    all.forbid_in_capture();
    if (bytes > 0) *memory = all.allocate(bytes, type, current_device(), site);
    return cudaSuccess;
  });
}

cudaError_t release(const char* api, void* memory, cudaMemoryType type) {
  if (!memory) return cudaSuccess;
  return api_call<Faults::reported_after>(api, [&](Runtime& all) {
    all.forbid_in_capture();
    all.release(memory, type, api);
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t cudaMalloc(void** memory, std::size_t bytes, simt::Site site) {
  return allocate("cudaMalloc", memory, bytes, cudaMemoryTypeDevice, site);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned, simt::Site site) {
  return allocate("cudaHostAlloc", memory, bytes, cudaMemoryTypeHost, site);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes, unsigned, simt::Site site) {
  return allocate("cudaMallocHost", memory, bytes, cudaMemoryTypeHost, site);
}

cudaError_t cudaFree(void* memory, simt::Site) {
  return release("cudaFree", memory, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeHost(void* memory, simt::Site) {
  return release("cudaFreeHost", memory, cudaMemoryTypeHost);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api_call("cudaMemGetInfo", [&](Runtime& all) {
    all.device(current_device());
    *free = all.memory_free(current_device());
    *total = options().memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api_call("cudaPointerGetAttributes", [&](Runtime& all) {
    const Allocation* memory = all.find(pointer);
    auto* address = const_cast<void*>(pointer);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
    if (on_device(memory)) *attributes = {memory->type, memory->device, address, nullptr};
    if (memory && !on_device(memory)) *attributes = {memory->type, memory->device, address, address};
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream, simt::Site site) {
  return copy_async(
      "cudaMemcpyAsync",
      {static_cast<char*>(to), static_cast<const char*>(from), bytes, bytes, bytes, 1, kind, site}, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width_bytes, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream, simt::Site site) {
  return copy_async("cudaMemcpy2DAsync",
                    {static_cast<char*>(to), static_cast<const char*>(from), to_pitch, from_pitch,
                     width_bytes, height, kind, site},
                    stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t handle, simt::Site site) {
  return api_call("cudaMemcpyPeerAsync", [&](Runtime& all) {
    const auto require = [&](const void* memory, int device, const char* what) {
      const Allocation* found = all.find(memory);
      if (bytes > 0 && (!on_device(found) || found->device != device)) {
        throw Failure{cudaErrorInvalidValue, fmt::format("the {} is not memory of device {}", what, device)};
      }
    };
    require(to, to_device, "destination");
    require(from, from_device, "source");
    all.queue(all.stream(handle), {checked_copy(all, {static_cast<char*>(to), static_cast<const char*>(from),
                                                      bytes, bytes, bytes, 1, cudaMemcpyDefault, site}),
                                   {}});
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, simt::Site site) {
  return api_call("cudaMemcpy", [&](Runtime& all) {
    all.forbid_in_capture();
    const CopyWork copy = checked_copy(
        all, {static_cast<char*>(to), static_cast<const char*>(from), bytes, bytes, bytes, 1, kind, site});
    Stream& stream = all.stream(nullptr);
    all.queue(stream, {copy});
    all.wait_for(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t handle,
                            simt::Site site) {
  return api_call("cudaMemsetAsync", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    if (bytes == 0) return cudaSuccess;
    if (!require_range(all, memory, bytes, "memory")) {
      throw Failure{cudaErrorInvalidValue, fmt::format("{} is host memory", memory)};
    }
    all.queue(stream, {FillWork{static_cast<char*>(memory), value, bytes, site}});
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes, simt::Site site) {
  return cudaMemsetAsync(memory, value, bytes, nullptr, site);
}
