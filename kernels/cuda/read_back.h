#pragma once

#include "kernels/cuda/context.h"
#include "tensor/detail/device_memory.h"

namespace athanor::cuda {

/// The value at a device address, after everything queued so far: a counted wait.
template <class T>
T read_back(const CudaContext& context, const T* from, const Site& site = Site::current()) {
  T value;
  athanor::detail::copy_device_bytes(&value, kCpu, from, context.device(), sizeof(T), site);
  return value;
}

}  // namespace athanor::cuda
