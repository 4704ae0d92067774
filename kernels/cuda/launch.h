#pragma once

#include "kernels/cuda/context.h"
#include "kernels/cuda/launch_plan.h"
#include "simt/launch.h"
#include "tensor/base/trace.h"
#include "tensor/cuda/launch_listener.h"
#include "tensor/cuda/runtime.h"

// How our kernels are launched.

namespace athanor::cuda {

using simt::dynamic_shared;
using simt::Launch;

/// Queues a kernel on the context's stream, as simt::launch says. Throws BackendError.
template <class... P, class... A>
void launch(const CudaContext& context, const Launch& how, void (*kernel)(P...), A&&... args) {
  if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0) return;
  const TraceScope traced(how.name, "kernel");
  const auto stream = static_cast<cudaStream_t>(context.native_stream());
  const LaunchScope reported(how.name, Queued::kernel, stream);
  detail::check_launch(simt::launch(stream, how, kernel, std::forward<A>(args)...), how.name);
}

inline unsigned blocks_for(const CudaContext& context, std::int64_t work, int threads, int waves = 8) {
  return blocks_for(context.multiprocessors(), work, threads, waves);
}

/// What a kernel gets for a tensor that may be undefined.
template <class T> T* data_or_null(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

}  // namespace athanor::cuda
