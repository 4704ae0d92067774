#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

// Reports what a thread queues on a GPU, for a program that times each kernel by events around it. Without a
// listener, a launch tests one thread-local pointer.

namespace athanor::cuda {

enum class Queued : std::uint8_t {
  kernel,  ///< of ours
  vendor,  ///< a call of cuDNN or cuBLASLt: one kernel or several
  copy,
  fill,
};

/// Notified of the work that its thread queues while it is the thread's listener; not of graphs that are
/// launched.
class LaunchListener {
 public:
  /// `name`: of the kernel, or of a vendor's call, as the account has it (KernelCost::kernel). `bytes`: read
  /// and written by a copy, written by a fill; else 0.
  virtual void before_launch(const char* name, Queued kind, cudaStream_t stream, std::size_t bytes) = 0;
  virtual void after_launch(cudaStream_t stream) noexcept = 0;

 protected:
  ~LaunchListener() = default;
};

namespace detail {
extern constinit thread_local LaunchListener* launch_listener;
}

/// Reports what is queued during its life, if there is a listener.
class LaunchScope {
 public:
  LaunchScope(const char* name, Queued kind, cudaStream_t stream, std::size_t bytes = 0)
      : listener_(detail::launch_listener), stream_(stream) {
    if (listener_) [[unlikely]]
      listener_->before_launch(name, kind, stream, bytes);
  }
  ~LaunchScope() {
    if (listener_) [[unlikely]]
      listener_->after_launch(stream_);
  }
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

 private:
  LaunchListener* listener_;
  cudaStream_t stream_;
};

}  // namespace athanor::cuda
