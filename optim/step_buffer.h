#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/step_state.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor {

/// The StepState of a training run, in the memory of the device the run uses.
///
/// On the CPU it is at hand: `step->learning_rate[0]`. A GPU works behind the host, which therefore does not
/// ask for values but takes those that have arrived: finish_step() sends the state on its way each time, and
/// known() is the newest that is here. The host stays at most kLead steps ahead of what it knows.
class StepBuffer {
 public:
  static constexpr int kLead = 16;

  explicit StepBuffer(Device device = kCpu, const StepState& initial = {});
  StepBuffer(const StepBuffer&) = delete;
  StepBuffer& operator=(const StepBuffer&) = delete;

  Device device() const { return device_; }
  /// Its address on the device, for Context::bind_step().
  StepState* data() const;

  /// On the CPU, the state itself. Throws ArgumentError elsewhere.
  StepState* operator->();
  const StepState* operator->() const { return const_cast<StepBuffer&>(*this).operator->(); }

  /// Replaces the state; queued behind what the device still does with the old one.
  void write(const StepState& state);
  /// The state as it is when all queued work is done: a counted wait.
  StepState read(const Site& site = Site::current()) const;
  /// The newest state that is here without waiting; on the CPU, the state itself.
  const StepState& known() const;
  /// How many steps may have been applied since the known state: 0 on the CPU.
  int unknown_steps() const { return pending_; }

  /// Calls `listener` with the state after each step, in order, when the host knows it: on the CPU at once,
  /// else within known() or publish(), up to kLead steps later. One listener; null ends it.
  void on_known(std::function<void(const StepState&)> listener) { listener_ = std::move(listener); }

  /// Seconds publish() has waited for a device that was kLead steps behind.
  double waited_s() const { return waited_s_; }

  /// Called by finish_step(), after the device's own: sends the state to the host.
  void publish();

 private:
  void collect(bool wait) const;

  Device device_;
  mutable StepState host_;  // the state on the CPU, else the newest known one
  Tensor memory_;           // on the device
  // Copies on their way to the host, a ring: pinned memory, and the mark behind each copy.
  mutable std::array<Tensor, kLead> letters_;
  mutable std::array<Event, kLead> arrived_;
  mutable int first_ = 0, pending_ = 0;
  mutable double waited_s_ = 0;
  std::function<void(const StepState&)> listener_;
};

}  // namespace athanor
