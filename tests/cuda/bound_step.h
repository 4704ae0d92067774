#pragma once

#include <cstring>

#include "kernels/on_device.h"
#include "kernels/update.h"
#include "tests/cuda/device.h"

namespace athanor::test {

inline Tensor bytes_of(const void* data, std::size_t size) {
  const Tensor t = Tensor::empty({static_cast<std::int64_t>(size)}, {DType::u8, kCpu});
  std::memcpy(t.raw_data(), data, size);
  return t;
}

/// The step scalars of one device, bound while this lives.
class BoundStep {
 public:
  BoundStep(Device device, const StepState& step)
      : device_(device), bytes_(bytes_of(&step, sizeof step).to(device)) {
    bind(reinterpret_cast<StepState*>(bytes_.raw_data()));
  }
  ~BoundStep() { bind(nullptr); }
  BoundStep(const BoundStep&) = delete;
  BoundStep& operator=(const BoundStep&) = delete;

  StepState read() const {
    StepState step;
    const Tensor here = bytes_.to(kCpu);
    std::memcpy(static_cast<void*>(&step), here.raw_data(), sizeof step);
    return step;
  }

 private:
  void bind(StepState* step) const {
    on_device(device_, [&](auto& context) { context.bind_step(step); });
  }

  Device device_;
  Tensor bytes_;
};

inline StepState make_step(bool found_inf = false) {
  StepState step;
  step.applied_steps = 4;
  step.learning_rate[0] = 0.1f;
  step.learning_rate[1] = 0.025f;
  step.loss_scale = 4;
  step.clip_coefficient = 0.75f;
  step.clip_value = 0.15f;
  step.found_inf = found_inf;
  return step;
}

}  // namespace athanor::test
