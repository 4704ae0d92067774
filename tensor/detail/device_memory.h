#pragma once

#include <cstddef>

#include "tensor/allocator.h"
#include "tensor/base/counters.h"
#include "tensor/device.h"

// Memory operations of a device's backend: tensor/cuda/, or tensor/cuda_absent.cpp without CUDA.

namespace athanor::detail {

/// Copies bytes between host and device, or on devices, in the order of the current stream. A copy from
/// pageable host memory uses a pinned buffer, so the host does not wait. A copy to host memory that is not
/// pinned is a counted wait.
void copy_device_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                       const Site& site);

/// Sets every byte to `value`, in the order of the current stream.
void set_device_bytes(void* data, Device device, int value, std::size_t bytes);

Allocator& device_allocator(Device device);

/// "cuda", or "simt" if the device is emulated.
const char* cuda_device_name();

}  // namespace athanor::detail
