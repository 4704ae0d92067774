#pragma once

#include "kernels/context.h"

// The one header of the library that a build with CUDA reads otherwise than one without.

namespace athanor {

/// Calls f(context) with the concrete context of the device: the library's only switch over devices. Kernels
/// are templates on the context, specialised in kernels/cpu/, kernels/cuda/ and kernels/account/; a missing
/// specialisation is a link error that names it.
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

}  // namespace athanor
