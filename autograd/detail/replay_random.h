#pragma once

#include "kernels/on_device.h"

namespace athanor::detail {

/// In its scope, this thread's random ops on a device draw what the step's ops from number `first` on drew;
/// then the counter is restored.
class ReplayRandom {
 public:
  ReplayRandom(Device device, std::int64_t first)
      : context_(on_device(device, [](auto& context) -> ContextBase& { return context; })),
        saved_(context_.random_ops()) {
    context_.set_random_ops(first);
  }
  ~ReplayRandom() { context_.set_random_ops(saved_); }
  ReplayRandom(const ReplayRandom&) = delete;
  ReplayRandom& operator=(const ReplayRandom&) = delete;

 private:
  ContextBase& context_;
  std::int64_t saved_;
};

}  // namespace athanor::detail
