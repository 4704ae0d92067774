#pragma once

#include <cstdint>
#include <deque>

#include "data/detail/slot.h"
#include "tensor/stream.h"

namespace athanor::detail {

/// Slots on a GPU, laid out like the host's, each with two events. `arrived` on the copy stream: the caller's
/// stream waits for it, and then the host's slot may be reused. `used` on the caller's stream: the copy
/// stream waits for it before it writes the next batch.
class DeviceFeed {
 public:
  DeviceFeed(Device device, int slots, const RowLayout& layout);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  /// Queues the copy of the first `rows` rows of step `number`.
  void send(std::int64_t number, const SlotTensors& from, std::int64_t rows);
  /// Whether the copy of step `number` is done. Does not wait.
  bool arrived(std::int64_t number) const { return of(number).arrived.done(); }
  /// Makes work that the caller queues from now on wait for step `number`.
  const SlotTensors& take(std::int64_t number) const;
  /// No work that the caller queues from now on uses step `number`.
  void release(std::int64_t number);

 private:
  struct DeviceSlot {
    DeviceSlot(const Tensor& memory, const RowLayout& layout)
        : tensors(memory, layout), arrived(memory.device()), used(memory.device()) {}
    SlotTensors tensors;
    Event arrived, used;
  };
  DeviceSlot& of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  const DeviceSlot& of(std::int64_t number) const {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  Device device_;
  Stream copies_;
  const RowLayout& layout_;
  std::deque<DeviceSlot> slots_;
};

}  // namespace athanor::detail
