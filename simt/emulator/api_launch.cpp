#include <utility>

#include <fmt/format.h>

#include "simt/emulator/runtime.h"
#include "simt/launch.h"

// How kernels enter the emulator, and what a launch can be refused for: its configuration, and pointers no
// kernel may follow.

namespace simt {
namespace {

void require_configuration(const Launch& how) {
  const auto refuse = [&](const std::string& why) {
    throw Failure{cudaErrorInvalidConfiguration,
                  fmt::format("kernel {}: grid ({},{},{}), block ({},{},{}): {}", how.name, how.grid.x,
                              how.grid.y, how.grid.z, how.block.x, how.block.y, how.block.z, why)};
  };
  if (how.grid.x > 0x7fffffff || how.grid.y > 65535 || how.grid.z > 65535) {
    refuse("a grid is at most 2147483647 x 65535 x 65535");
  }
  const std::uint64_t threads = std::uint64_t{how.block.x} * how.block.y * how.block.z;
  if (threads == 0 || threads > 1024 || how.block.x > 1024 || how.block.y > 1024 || how.block.z > 64) {
    refuse("a block has 1 to 1024 threads, at most 1024 x 1024 x 64");
  }
  if (how.shared_bytes > kSharedBytesPerBlockOptin) {
    refuse(fmt::format("{} bytes of dynamic shared memory, but a block has at most {}", how.shared_bytes,
                       kSharedBytesPerBlockOptin));
  }
}

void require_reachable(const char* name, const Runtime& all, const char* pointer, std::size_t position,
                       int device) {
  if (!pointer) return;
  const Allocation* memory = all.memory.find_or_end(pointer);
  if (!memory) {
    throw Failure{
        cudaErrorIllegalAddress,
        fmt::format("kernel {}: parameter {} points to host memory, or to no allocation", name, position)};
  }
  if (memory->type == cudaMemoryTypeHost || memory->device == device) return;
  throw Failure{
      cudaErrorIllegalAddress,
      fmt::format("kernel {}: parameter {} points to memory of device {}, but the kernel runs on {}", name,
                  position, memory->device, device)};
}

Substitute substitute = nullptr;

}  // namespace

Substitute substitute_kernels(Substitute by) {
  return std::exchange(substitute, by);
}

cudaError_t launch_kernel(cudaStream_t handle, const Launch& how, const Kernel& kernel,
                          const void* const* arguments) {
  return api_call("launch", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    if (stream.device != current_device()) {
      throw Failure{cudaErrorInvalidResourceHandle,
                    fmt::format("kernel {}: stream {} is of device {}, but {} is current", how.name,
                                stream.id, stream.device, current_device())};
    }
    require_configuration(how);
    const KernelForm form = substitute ? substitute(how, kernel) : KernelForm{kernel};
    // Not operator new: tests count that, and a launch on a GPU calls none.
    const auto call = std::allocate_shared<const KernelCall>(MallocAllocator<KernelCall>(), form, arguments);
    call->for_each_pointer([&](const char* pointer, std::size_t position) {
      require_reachable(how.name, all, pointer, position, stream.device);
    });
    all.queue(stream, {LaunchWork{how.name, call, how.grid, how.block, how.shared_bytes}});
    return cudaSuccess;
  });
}

}  // namespace simt
