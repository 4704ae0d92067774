#include <fmt/format.h>

#include "simt/emulator/copies.h"
#include "simt/emulator/graph.h"
#include "simt/emulator/runtime.h"

using namespace simt;

namespace {

constexpr std::size_t kGraveyard = std::size_t{256} << 20;  // more must not wait to be given to the system

const Allocation* require_range(const Runtime& all, const void* begin, std::size_t bytes, const char* what) {
  const Allocation* memory = all.memory.find(begin);
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
CopyWork checked_copy(const Runtime& all, void* destination, const void* source, std::size_t bytes,
                      cudaMemcpyKind kind, const Site& site) {
  CopyWork copy{static_cast<char*>(destination), static_cast<const char*>(source), bytes, kind, site};
  if (bytes == 0) return copy;
  if (!copy.to || !copy.from) throw Failure{cudaErrorInvalidValue, "an address is null"};
  const bool to = on_device(require_range(all, copy.to, bytes, "destination"));
  const bool from = on_device(require_range(all, copy.from, bytes, "source"));
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

cudaError_t allocate(const char* api, void** memory, std::size_t bytes, cudaMemoryType type,
                     const Site& site) {
  *memory = nullptr;
  return api_call(api, [&](Runtime& all) {
    all.device(current_device());
    forbid_in_capture(all);
    if (bytes == 0) return cudaSuccess;
    all.device(current_device()).has_context = true;
    *memory = all.memory.allocate(bytes, type, current_device(), site);
    return cudaSuccess;
  });
}

// What of an op names the memory.
std::string user_of(const Op& op, const NamedRange& range) {
  const auto placed = [](const char* what, const Site& site) {
    return fmt::format("{} of {}:{}", what, site.file, site.line);
  };
  if (const auto* copy = std::get_if<CopyWork>(&op.work)) return placed("a copy", copy->site);
  if (const auto* fill = std::get_if<FillWork>(&op.work)) return placed("a memset", fill->site);
  if (const auto* launch = std::get_if<LaunchWork>(&op.work))
    return fmt::format("parameter {} of kernel {}", range.position, launch->name);
  return "a message";
}

cudaError_t release(const char* api, void* memory, cudaMemoryType type) {
  if (!memory) return cudaSuccess;
  return api_call<Faults::reported_after>(api, [&](Runtime& all) {
    forbid_in_capture(all);
    const Allocation allocation = all.memory.live(memory, type);
    int device = 0;
    std::string user;
    all.for_each_queued([&](const Stream& stream, const Op& op) {
      for_each_range(op, [&](const NamedRange& range) {
        if (!user.empty() || range.begin >= allocation.base + allocation.bytes ||
            range.begin + range.bytes <= allocation.base)
          return;
        device = stream.device;
        user = user_of(op, range) + fmt::format(", queued on stream {}", stream.id);
      });
    });
    all.memory.bury(allocation);
    if (!user.empty()) {
      all.fault(device, fmt::format("{}: {} bytes, allocated at {}:{}, are freed while {} names them", api,
                                    allocation.bytes, allocation.site.file, allocation.site.line, user));
    }
    if (all.memory.buried_bytes() > kGraveyard && all.captures.empty()) {
      for (int index = 0; index < all.device_count(); ++index) all.run_everything(index);
    }
    all.empty_graveyard();
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
    *free = all.memory.bytes_free(current_device());
    *total = options().memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle, simt::Site site) {
  return api_call("cudaMemcpyAsync", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    const CopyWork copy = checked_copy(all, to, from, bytes, kind, site);
    all.queue(stream, {copy});
    // A copy to pageable memory is done when the call returns.
    if (copy.kind == cudaMemcpyDeviceToHost && !stream.capture && !all.memory.find(copy.to))
      all.wait_for(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t handle, simt::Site site) {
  return api_call("cudaMemcpyPeerAsync", [&](Runtime& all) {
    const auto require = [&](const void* memory, int device, const char* what) {
      const Allocation* found = all.memory.find(memory);
      if (bytes > 0 && (!on_device(found) || found->device != device)) {
        throw Failure{cudaErrorInvalidValue, fmt::format("the {} is not memory of device {}", what, device)};
      }
    };
    require(to, to_device, "destination");
    require(from, from_device, "source");
    all.queue(all.stream(handle), {checked_copy(all, to, from, bytes, cudaMemcpyDefault, site)});
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, simt::Site site) {
  return api_call("cudaMemcpy", [&](Runtime& all) {
    forbid_in_capture(all);
    const CopyWork copy = checked_copy(all, to, from, bytes, kind, site);
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
