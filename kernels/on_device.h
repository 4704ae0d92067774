#pragma once

#include "kernels/account/context.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"

// The one header of the library that a build with CUDA reads otherwise than one without.

namespace athanor {

/// Calls f(context) with the concrete context of the device: the library's only switch over devices. A
/// kernel has an overload for each (ATH_KERNEL), defined in kernels/cpu/, kernels/cuda/ and kernels/account/.
template <class F> decltype(auto) on_device(Device device, F&& f) {
  if (device.is_cpu()) {
    if (detail::account) [[unlikely]]
      return f(*detail::account);
    return f(cpu_context());
  }
#if defined(ATHANOR_WITH_CUDA)
  return f(cuda_context(device));
#else
  detail::fail<BackendError>(
      "this build has no backend for {}; configure with the cuda preset, or use --device cpu", device.str());
#endif
}

/// The device whose kernels on_device() calls for this one: in an account, the GPU that it is for.
inline Device device_of_kernels(Device device) {
  return detail::account && device.is_cpu() ? Device{DeviceType::cuda} : device;
}

}  // namespace athanor
