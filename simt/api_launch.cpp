#include <algorithm>

#include <fmt/format.h>

#include "simt/runtime.h"

// What a launch can be refused for: its configuration, and pointers no kernel may follow.

namespace simt {
namespace {

void require_configuration(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes) {
  const auto refuse = [&](const std::string& why) {
    throw Failure{cudaErrorInvalidConfiguration,
                  fmt::format("kernel {}: grid ({},{},{}), block ({},{},{}): {}", name, grid.x, grid.y,
                              grid.z, block.x, block.y, block.z, why)};
  };
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
    refuse("a grid is at most 2147483647 x 65535 x 65535");
  }
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) {
    refuse("a block has 1 to 1024 threads, at most 1024 x 1024 x 64");
  }
  if (shared_bytes > kSharedBytesPerBlockOptin) {
    refuse(fmt::format("{} bytes of dynamic shared memory, but a block has at most {}", shared_bytes,
                       kSharedBytesPerBlockOptin));
  }
}

// A pointer may also be the end of an array.
void require_reachable(const char* name, Runtime& all, const PointerParameter& parameter, int device) {
  if (!parameter.value) return;
  const Allocation* memory = all.find(parameter.value);
  if (!memory) memory = all.find(static_cast<const char*>(parameter.value) - 1);
  if (!memory) {
    throw Failure{cudaErrorIllegalAddress,
                  fmt::format("kernel {}: parameter {} points to host memory, or to no allocation", name,
                              parameter.position)};
  }
  if (memory->type == cudaMemoryTypeHost || memory->device == device) return;
  const auto& peers = all.device(device).peers;
  if (std::find(peers.begin(), peers.end(), memory->device) != peers.end()) return;
  throw Failure{
      cudaErrorIllegalAddress,
      fmt::format("kernel {}: parameter {} points to memory of device {}, but the kernel runs on {}", name,
                  parameter.position, memory->device, device)};
}

}  // namespace

cudaError_t detail::queue_launch(const char* name, Call* owned, dim3 grid, dim3 block,
                                 std::size_t shared_bytes, cudaStream_t handle) {
  CallRef call(owned);
  return api_call("launch", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    if (stream.device != current_device()) {
      throw Failure{cudaErrorInvalidResourceHandle,
                    fmt::format("kernel {}: stream {} is of device {}, but {} is current", name, stream.id,
                                stream.device, current_device())};
    }
    require_configuration(name, grid, block, shared_bytes);
    for (const PointerParameter& parameter : call->pointers()) {
      require_reachable(name, all, parameter, stream.device);
    }
    all.queue(stream, {LaunchWork{name, std::move(call), grid, block, shared_bytes}});
    return cudaSuccess;
  });
}

}  // namespace simt
