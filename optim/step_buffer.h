#pragma once

#include <array>
#include <functional>
#include <utility>

#include "kernels/step_state.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor {

/// The StepState of a training run, in the memory of the run's device.
///
/// On the CPU the state is directly accessible: `step->learning_rate[0]`. A GPU runs behind the host, so the
/// host does not wait for values but uses the newest that have arrived, known(). finish_step() sends the
/// state each time. The host stays at most kLead steps ahead of the known state.
class StepBuffer {
 public:
  static constexpr int kLead = 16;

  explicit StepBuffer(Device device = kCpu, const StepState& initial = {});
  StepBuffer(const StepBuffer&) = delete;
  StepBuffer& operator=(const StepBuffer&) = delete;

  Device device() const { return device_; }
  /// Its address on the device, for Context::bind_step().
  StepState* data() const;

  /// The state itself, on the CPU. Throws ArgumentError elsewhere.
  StepState* operator->();
  const StepState* operator->() const { return const_cast<StepBuffer&>(*this).operator->(); }

  /// Replaces the state, after all queued work that uses the old one.
  void write(const StepState& state);
  /// The state after all queued work: a counted wait.
  StepState read(const Site& site = Site::current()) const;
  /// The newest state available without waiting; on the CPU, the state itself.
  const StepState& known() const;
  /// Upper bound on steps applied since the known state: 0 on the CPU.
  int unknown_steps() const { return pending_; }

  /// Calls `listener` with the state after each step, in order, once the host knows it: on the CPU at once,
  /// else within known() or publish(), up to kLead steps later. One listener; null removes it.
  void on_known(std::function<void(const StepState&)> listener) { listener_ = std::move(listener); }

  /// Seconds that publish() has waited for a device kLead steps behind.
  double waited_s() const { return waited_s_; }

  /// Sends the state to the host. finish_step() calls this after the device's own work.
  void publish();

 private:
  void collect(bool wait) const;

  Device device_;
  mutable StepState host_;  // the state on the CPU, else the newest known one
  Tensor memory_;           // on the device
  // Copies in flight to the host, a ring: pinned memory, and an event after each copy.
  mutable std::array<Tensor, kLead> letters_;
  mutable std::array<Event, kLead> arrived_;
  mutable int first_ = 0, pending_ = 0;
  mutable double waited_s_ = 0;
  std::function<void(const StepState&)> listener_;
};

}  // namespace athanor
