#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tensor/base/counters.h"
#include "tensor/base/ref.h"
#include "tensor/device.h"

// Devices, their queues of work (streams), and events in those queues. On the CPU, work is done when a call
// returns; streams and events exist but do nothing, so that code need not distinguish.

namespace athanor {

/// Number of GPUs this process can use: 0 in a build without CUDA, or without a driver or GPU.
int cuda_device_count();
/// Why that is 0, and how to fix it; empty if it is not 0.
const std::string& why_no_cuda();
/// Whether this build emulates its CUDA kernels on the CPU, to check them: correct but slow.
bool cuda_is_emulated();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability: 9, 0 for sm_90
  int multiprocessors = 1;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes_per_block = 0;  ///< with the opt-in of cudaFuncSetAttribute

  int sm() const { return 10 * major + minor; }
};

/// Throws BackendError, with why_no_cuda(), if the device does not exist.
const DeviceInfo& device_info(Device device);

namespace detail {
class StreamState;  // tensor/detail/stream_state.h
class EventState;
}  // namespace detail

class Event;

/// Whose kernels start first where several streams have some ready: a hint, of which no order follows.
enum class StreamPriority : std::uint8_t { normal, high };

/// A queue of work on a device, executed in order. A handle: copies refer to the same queue.
class Stream {
 public:
  /// A new queue with no other handle. Only events order the work of two queues.
  static Stream create(Device device, StreamPriority priority = StreamPriority::normal);
  /// The default queue of every thread.
  static Stream default_of(Device device);

  Device device() const { return device_; }
  /// cudaStream_t; null on the CPU.
  void* native() const;
  /// Identifies a stream of a device: a small number, reused after the last handle is gone.
  std::uint32_t id() const;

  /// Work queued from now on starts after the work before `event`.
  void wait(const Event& event) const;
  /// Waits for all queued work. A counted wait.
  void synchronize(const Site& site = Site::current()) const;

  bool operator==(const Stream& other) const = default;

 private:
  friend class Event;
  friend class StreamGuard;
  friend Stream current_stream(Device device);
  Stream(Device device, Ref<RefCounted> state) : device_(device), state_(std::move(state)) {}
  detail::StreamState& state() const;

  Device device_;
  Ref<RefCounted> state_;  // a StreamState; null on the CPU
};

/// An event in a stream.
class Event {
 public:
  enum class Timing : std::uint8_t { off, on };

  explicit Event(Device device, Timing timing = Timing::off);

  /// Covers all work queued so far. May be recorded again; earlier waits keep referring to the old record.
  void record(const Stream& stream);
  /// Whether all recorded work is done; true if nothing was recorded. Does not wait.
  bool done() const;
  /// Waits for the recorded work. A counted wait.
  void synchronize(const Site& site = Site::current()) const;
  /// Milliseconds from this event to a later one; both need Timing::on and must be recorded and done.
  double ms_until(const Event& later) const;

  void* native() const;  ///< cudaEvent_t; null on the CPU

 private:
  friend class Stream;
  detail::EventState& state() const;

  Device device_;
  Ref<RefCounted> state_;  // an EventState
};

/// The queue for this thread's work on a device, including its allocations.
Stream current_stream(Device device);

/// While alive, this thread's work on the stream's device uses `stream`. Nests.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream saved_;
};

/// Waits for all work of a device. A counted wait.
void synchronize(Device device, const Site& site = Site::current());

}  // namespace athanor
