#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/handles.h"
#include "simt/emulator/kernel_call.h"
#include "simt/emulator/memory.h"
#include "simt/emulator/options.h"
#include "simt/emulator/plain_memory.h"
#include "simt/emulator/race.h"

// The emulated devices: memory, streams of queued work, events, graphs. One lock guards it all.
//
// Work that is queued runs late: when the host waits for it, asks after it, or has queued too much. A GPU may
// be that slow; code that reads a result too early, or overwrites an input too early, meets it here every
// time. In which order streams then run is for options().streams to say, as far as events leave a choice:
// forward runs only what the host waits for; reverse and random run other streams' work before.
//
// A kernel that fails, or a rule of the host's that was broken in the meantime, is a fault of the device:
// what is queued there is dropped, and every call from then on reports the whole diagnosis, as on a GPU:
// cudaGetLastError does not end that, only cudaDeviceReset does.

namespace simt {

struct Capture;

inline constexpr std::size_t kSharedBytesPerBlock = 48 * 1024;        ///< without being asked for
inline constexpr std::size_t kSharedBytesPerBlockOptin = 227 * 1024;  ///< where it is; simt::launch asks

inline constexpr int kHighestPriority = -5;  ///< of a stream; 0 is the lowest

/// A call of the runtime that failed: becomes the call's result, and the text of cudaGetErrorString.
struct Failure {
  cudaError_t code;
  std::string text;
};

/// Everything queued on a stream up to a position.
struct Mark {
  Stream* stream = nullptr;
  std::uint64_t position = 0;
};

bool reached(Mark mark);

struct LaunchWork {
  const char* name;
  std::shared_ptr<const KernelCall> call;  ///< shared by the launches of a graph
  dim3 grid, block;
  std::size_t shared_bytes;
};
struct CopyWork {
  char* to;
  const char* from;
  std::size_t bytes;
  cudaMemcpyKind kind;
  Site site;
  bool checked = false;  ///< whether `hash` is of the source when it was queued
  bool from_pageable = false;
  std::uint64_t hash = 0;
};
struct FillWork {
  char* to;
  int value;
  std::size_t bytes;
  Site site;
};
struct HostWork {
  cudaHostFn_t function;
  void* data;
  Site site;
};
struct RecordWork {
  Event* event;
  std::uint64_t generation;
};
/// What cannot be done by one stream alone: messages, which pass when both ends are at them. The stream does
/// nothing else meanwhile.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Called when it is the stream's turn, and again when something has happened since. True when it is over.
  /// `moved`: this call has changed what others may wait for.
  virtual bool attend(Stream& stream, bool& moved) = 0;
  /// Calls f(begin, bytes) for the memory it names.
  virtual void for_each_range(const std::function<void(const char*, std::size_t)>& f) const = 0;
};
struct MeetWork {
  std::shared_ptr<Meeting> meeting;
  std::uint64_t tried = 0;  ///< what had happened when it was last attended
};
struct JoinWork {};  ///< does nothing, after what it waits for

/// One thing to do, in its stream's order and after some marks in others.
struct Op {
  std::variant<JoinWork, LaunchWork, CopyWork, FillWork, HostWork, RecordWork, MeetWork> work = {};
  Vector<Mark> after = {};
  race::Clock clock = {};    ///< race build: what is before it
  std::uint64_t ticket = 0;  ///< ops in the order in which they were queued
};

/// Memory that an op names. Of a parameter of a kernel the beginning is all that is known.
struct NamedRange {
  enum class As : std::uint8_t { destination, source, filled, parameter, message };
  As as;
  const char* begin;
  std::size_t bytes;
  std::size_t position = 0;  ///< of a parameter
};

/// Calls f(range) for all of it.
template <class F> void for_each_range(const Op& op, F&& f) {
  using As = NamedRange::As;
  if (const auto* copy = std::get_if<CopyWork>(&op.work)) {
    f(NamedRange{As::destination, copy->to, copy->bytes});
    f(NamedRange{As::source, copy->from, copy->bytes});
  } else if (const auto* fill = std::get_if<FillWork>(&op.work)) {
    f(NamedRange{As::filled, fill->to, fill->bytes});
  } else if (const auto* launch = std::get_if<LaunchWork>(&op.work)) {
    launch->call->for_each_pointer([&](const char* pointer, std::size_t position) {
      f(NamedRange{As::parameter, pointer, 1, position});
    });
  } else if (const auto* meet = std::get_if<MeetWork>(&op.work)) {
    const auto each = [&](const char* begin, std::size_t bytes) { f(NamedRange{As::message, begin, bytes}); };
    meet->meeting->for_each_range(std::cref(each));  // so that std::function needs no memory
  }
}

struct Device {
  Stream* default_stream = nullptr;
  std::string fault;
  bool has_context = false;  ///< made by the first call that needs one, such as cudaSetDevice
};

/// The state behind the API. Every member function is called with the lock held.
class Runtime {
 public:
  Runtime();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // Handles. Each throws Failure where it is not what it should be.
  Device& device(int index);
  Stream& stream(cudaStream_t handle);
  Event& event(cudaEvent_t handle);
  int device_count() const { return static_cast<int>(devices_.size()); }

  // Queues.
  Mark queue(Stream& stream, Op op);
  void run_until(Mark mark);
  void run_everything(int device);
  /// The same, for the host to go on from.
  void wait_for(Stream& stream);
  void wait_for(Event& event);
  /// Runs at most one op towards it; whether it is reached.
  bool poll(Mark mark);
  void fault(int device, std::string text);
  bool anything_queued() const;
  /// What a Meeting waits for may have come.
  void something_happened();

  /// Gives the system what was freed, if no queued work can reach it.
  void empty_graveyard();
  /// Calls f(stream, op) for all work that is queued.
  template <class F> void for_each_queued(F&& f) const;

  Memory memory;
  Handles handles;
  Vector<Capture*> captures;

 private:
  Stream* pick_any(Order::Kind order);
  bool step(Mark mark);
  void run_front(Stream& stream);
  bool attend(Stream& stream, MeetWork& work);
  void execute(Stream& stream, Op& op);
  void run_host_function(Stream& stream, const HostWork& work);

  std::mutex mutex_;
  std::condition_variable changed_;  // ops were queued or run, or a host function has ended
  std::uint64_t happened_ = 1;       // counts what a Meeting may wait for
  std::deque<Device> devices_;
  std::uint64_t tickets_ = 0;
  Random random_{1};
};

Runtime& runtime();
int& current_device();  ///< of this thread

/// The body of an API call: takes the lock, reports a fault of the current device, turns Failure into the
/// call's result and remembers it for cudaGetLastError.
enum class Faults : std::uint8_t { reported_first, reported_after, not_reported };
cudaError_t remember(cudaError_t code, const std::string& text);
cudaError_t pending_fault(Runtime& all, int device);
bool& inside_host_function();
template <Faults faults = Faults::reported_first, class F> cudaError_t api_call(const char* api, F&& body) {
  if (inside_host_function()) {
    return remember(cudaErrorNotPermitted,
                    std::string(api) + ": a function of cudaLaunchHostFunc must not call CUDA");
  }
  Runtime& all = runtime();
  const auto guard = all.lock();
  if (!options().error.empty()) return remember(cudaErrorInitializationError, options().error);
  try {
    if constexpr (faults == Faults::reported_first) {
      if (const auto code = pending_fault(all, current_device()); code != cudaSuccess) return code;
    }
    const cudaError_t code = body(all);
    if (code == cudaErrorNotReady) return remember(code, "earlier queued work has not finished");
    if (code != cudaSuccess || faults == Faults::not_reported) return code;
    return pending_fault(all, current_device());
  } catch (const Failure& failure) {
    return remember(failure.code, std::string(api) + ": " + failure.text);
  } catch (const std::bad_alloc&) {
    return remember(cudaErrorMemoryAllocation, std::string(api) + ": the host is out of memory");
  }
}

}  // namespace simt

struct CUstream_st {
  static constexpr std::uint32_t kAlive = 0x5354524d;
  std::uint32_t magic = kAlive;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  bool of_graph = false;
  bool running_host_function = false;

  simt::Deque<simt::Op> queue;
  std::uint64_t queued = 0, done = 0;  ///< ops so far
  std::uint32_t slot = 0;              ///< of the stream in clocks
  simt::race::Clock clock;             ///< race build: of its latest op

  simt::Capture* capture = nullptr;
};

struct CUevent_st {
  static constexpr std::uint32_t kAlive = 0x4556454e;
  std::uint32_t magic = kAlive;
  int device = 0;
  unsigned flags = 0;

  simt::Mark mark;               ///< of the latest record; no stream: never recorded
  simt::race::Clock clock;       ///< race build: of that record
  std::uint64_t generation = 0;  ///< records so far
  std::uint64_t timed = 0;       ///< the generation `when` belongs to
  std::chrono::steady_clock::time_point when;

  std::uint64_t capture_id = 0;  ///< of the capture the latest record was in; 0: none
  simt::Vector<int> captured;    ///< the nodes it marks
};

template <class F> void simt::Runtime::for_each_queued(F&& f) const {
  for (const Stream* stream : handles.streams()) {
    for (const Op& op : stream->queue) f(*stream, op);
  }
}
