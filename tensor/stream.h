#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tensor/counters.h"
#include "tensor/device.h"
#include "tensor/ref.h"

// Work on a device, as far as everybody must know of it: which devices there are, the queues they work off,
// and marks in those queues. On the CPU, work is done when the call returns: its streams and events exist,
// so that code need not ask, and do nothing.

namespace athanor {

/// GPUs this process can use: 0 in a build without CUDA, without a driver and without a GPU.
int cuda_device_count();
/// Why that is 0, and what to do about it; empty where it is not.
const std::string& why_no_cuda();
/// Whether this build runs its CUDA kernels on the CPU, to check them: correct, not fast.
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

/// Throws BackendError, with why_no_cuda(), where there is no such device.
const DeviceInfo& device_info(Device device);

namespace detail {
class StreamState;  // tensor/detail/stream_state.h
class EventState;
}  // namespace detail

class Event;

/// A queue of work on a device, worked off in order. A handle: copies name the same queue.
class Stream {
 public:
  /// A queue that is in no other handle's hands. What two queues do is ordered by events alone.
  static Stream create(Device device);
  /// The queue a thread uses that never asked for another.
  static Stream default_of(Device device);

  Device device() const { return device_; }
  /// cudaStream_t; null on the CPU.
  void* native() const;
  /// Tells the streams of a device apart: small numbers, given to another stream after the last handle is
  /// gone.
  std::uint32_t id() const;

  /// Work queued from now on starts after what `event` marks.
  void wait(const Event& event) const;
  /// Waits until all work is done. A counted wait.
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

/// A mark in a stream.
class Event {
 public:
  enum class Timing : std::uint8_t { off, on };

  explicit Event(Device device, Timing timing = Timing::off);

  /// Marks everything queued so far. May be recorded again; who waited before keeps waiting for the old mark.
  void record(const Stream& stream);
  /// Whether all that was marked is done; true where nothing was. Does not wait.
  bool done() const;
  /// Waits until it is. A counted wait.
  void synchronize(const Site& site = Site::current()) const;
  /// Milliseconds from this mark to a later one, both made with Timing::on, recorded and done.
  double ms_until(const Event& later) const;

  void* native() const;  ///< cudaEvent_t; null on the CPU

 private:
  friend class Stream;
  detail::EventState& state() const;

  Device device_;
  Ref<RefCounted> state_;  // an EventState
};

/// The queue this thread's work on a device goes to, its allocations included.
Stream current_stream(Device device);

/// While alive, this thread's work on the stream's device goes to `stream`. Nests.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream saved_;
};

/// Waits until a device has done everything. A counted wait.
void synchronize(Device device, const Site& site = Site::current());

}  // namespace athanor
