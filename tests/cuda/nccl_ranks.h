#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "dist/transports/nccl_transport.h"
#include "tests/cuda/device_ranks.h"

// Ranks with a device each, over NCCL: on a machine with one GPU, a world of one.

namespace athanor::test {

/// Worlds NCCL can run here: a GPU for each rank.
inline std::vector<int> nccl_worlds() {
  std::vector<int> worlds;
  for (int world = 1; world <= std::min(kMaxRanks, cuda_device_count()); ++world) worlds.push_back(world);
  return worlds;
}

/// A device for each rank.
inline void run_nccl_ranks(int world, const std::function<void(dist::NcclTransport&)>& f,
                           std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const dist::NcclId id = dist::new_nccl_id();
  const auto device_of = [](int rank) { return Device{DeviceType::cuda, static_cast<std::int16_t>(rank)}; };
  run_on_devices(world, device_of, [&](int rank) {
    dist::NcclTransport transport(id, rank, world, {.device = device_of(rank), .timeout = timeout});
    f(transport);
  });
}

}  // namespace athanor::test
