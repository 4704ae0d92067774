#pragma once

#include <cstddef>

#include "tensor/allocator.h"
#include "tensor/counters.h"
#include "tensor/device.h"

// What a device's bytes need of its backend: tensor/cuda/, or tensor/cuda_absent.cpp in a build without.

namespace athanor::detail {

/// Copies bytes between the host and a device, or on devices, in the order of the current stream. From
/// pageable host memory through a pinned buffer, so that the host does not wait; to host memory that is not
/// pinned, a counted wait.
void copy_device_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                       const Site& site);

/// Every byte becomes `value`, in the order of the current stream.
void set_device_bytes(void* data, Device device, int value, std::size_t bytes);

Allocator& device_allocator(Device device);

/// "cuda", or "simt" where the device is emulated.
const char* cuda_device_name();

}  // namespace athanor::detail
