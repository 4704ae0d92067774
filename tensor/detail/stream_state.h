#pragma once

#include <cstdint>

#include "tensor/base/ref.h"
#include "tensor/device.h"
#include "tensor/stream.h"

// Streams and events of a backend: tensor/cuda/stream.cpp, or tensor/cuda_absent.cpp.

namespace athanor::detail {

/// Devices one process can address.
inline constexpr int kMaxDevices = 64;

class EventState;

/// A queue of a device. The CPU has none.
class StreamState : public RefCounted {
 public:
  StreamState(Device where, void* handle, std::uint32_t number) : device(where), native(handle), id(number) {}

  virtual void wait(const EventState& event) = 0;
  virtual void synchronize() = 0;

  const Device device;
  void* const native;
  const std::uint32_t id;
};

/// An event in a queue.
class EventState : public RefCounted {
 public:
  virtual void* native() const = 0;
  virtual void record(const Stream& stream) = 0;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
  virtual double ms_until(const EventState& later) const = 0;
};

/// Throws BackendError, with why_no_cuda(), if the device does not exist.
void check_device(Device device);

Ref<StreamState> create_device_stream(Device device, StreamPriority priority);
/// One per device, created on first use, never destroyed.
StreamState& default_device_stream(Device device);
Ref<EventState> create_device_event(Device device, Event::Timing timing);
void synchronize_device(Device device);

/// The stream of current_stream(), without taking a reference: for every launch and allocation.
StreamState& current_stream_state(Device device);

}  // namespace athanor::detail
