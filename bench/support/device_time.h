#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tensor/device.h"

namespace athanor::bench {

/// Seconds of one run(i), i counting up, by the device's own clock: samples of as many runs as take a
/// millisecond, all queued at once, so that the device never waits for the host between them.
std::vector<double> device_seconds(Device device, const std::function<void(std::int64_t)>& run);

}  // namespace athanor::bench
