#include "simt/emulator/runtime.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/emulator/copies.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/graph.h"

// Streams: what is queued, and when it runs.

namespace simt {

Runtime& runtime() {
  static Runtime& result = *new Runtime;  // never destroyed: memory is freed by destructors of statics too
  return result;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

bool& inside_host_function() {
  static thread_local bool inside = false;
  return inside;
}

Runtime::Runtime() : memory(options().devices), random_(options().streams.seed) {
  for (int index = 0; index < options().devices; ++index) {
    devices_.emplace_back();
    devices_.back().default_stream = handles.make_stream(index, cudaStreamDefault);
  }
}

Device& Runtime::device(int index) {
  if (devices_.empty()) {
    throw Failure{cudaErrorNoDevice, "SIMT_DEVICES=0: there is no device"};
  }
  if (index < 0 || index >= device_count()) {
    throw Failure{cudaErrorInvalidDevice,
                  fmt::format("there are {} devices, but not {}", device_count(), index)};
  }
  return devices_[static_cast<std::size_t>(index)];
}

// Handles of destroyed streams and events stay valid memory, so that using one can be told.
Stream& Runtime::stream(cudaStream_t handle) {
  Stream* stream = handle ? handle : device(current_device()).default_stream;
  if (stream->magic != Stream::kAlive) {
    throw Failure{cudaErrorInvalidResourceHandle, fmt::format("stream {} was destroyed", stream->id)};
  }
  if (Device& of = device(stream->device); !of.fault.empty()) {
    throw Failure{cudaErrorLaunchFailure, of.fault};
  }
  return *stream;
}

Event& Runtime::event(cudaEvent_t handle) {
  if (!handle) throw Failure{cudaErrorInvalidResourceHandle, "the event is null"};
  if (handle->magic != Event::kAlive) {
    throw Failure{cudaErrorInvalidResourceHandle, "the event was destroyed"};
  }
  return *handle;
}

// ---- queues

namespace {

constexpr std::size_t kQueueLimit = 1024;  // as on a GPU, where a launch waits for room

#if defined(SIMT_RACE)
// Marks that are not the latest of their stream come with a clock in the op already.
void advance_clock(Stream& stream, Op& op) {
  race::Clock& clock = stream.clock;
  race::join(clock, race::host_clock());
  race::join(clock, op.clock);
  for (const Mark& mark : op.after) {
    if (mark.position == mark.stream->queued) race::join(clock, mark.stream->clock);
  }
  if (clock.size() <= stream.slot) clock.resize(stream.slot + 1, 0);
  clock[stream.slot] = stream.queued;
  op.clock = clock;
}
#else
void advance_clock(Stream&, Op&) {}
#endif

}  // namespace

bool reached(Mark mark) {
  return !mark.stream || mark.stream->done >= mark.position;
}

Mark Runtime::queue(Stream& stream, Op op) {
  if (stream.capture) {
    capture_op(stream, std::move(op));
    return {};
  }
  // The default stream waits for the streams that were not made non-blocking, and they for it.
  const auto blocking = [](const Stream& other) {
    return (other.flags & cudaStreamNonBlocking) == 0 && !other.of_graph;
  };
  Stream* const legacy = device(stream.device).default_stream;
  if (&stream == legacy) {
    forbid_beside_capture(*this, stream);
    for (Stream* other : handles.streams()) {
      if (other != legacy && other->device == stream.device && blocking(*other) && other->queued > 0) {
        op.after.push_back({other, other->queued});
      }
    }
  } else if (blocking(stream) && legacy->queued > 0) {
    op.after.push_back({legacy, legacy->queued});
  }
  if (stream.queue.size() >= kQueueLimit && !stream.of_graph) {
    run_until({&stream, stream.queued - kQueueLimit / 2});
  }
  if (auto* copy = std::get_if<CopyWork>(&op.work)) watch(*this, stream, op.after, *copy);
  op.ticket = ++tickets_;
  ++stream.queued;
  if constexpr (race::kOn) advance_clock(stream, op);
  stream.queue.push_back(std::move(op));
  changed_.notify_all();
  return {&stream, stream.queued};
}

bool Runtime::anything_queued() const {
  return std::any_of(handles.streams().begin(), handles.streams().end(), [](const Stream* stream) {
    return !stream->queue.empty() || stream->running_host_function;
  });
}

void Runtime::empty_graveyard() {
  if (memory.buried_bytes() > 0 && !anything_queued()) memory.empty_graveyard();
}

// ---- what runs next

namespace {

// Its first op is a meeting that would find nothing new.
bool waits_for_others(const Stream& stream, std::uint64_t happened) {
  if (stream.queue.empty()) return false;
  const auto* meet = std::get_if<MeetWork>(&stream.queue.front().work);
  return meet && meet->tried == happened;
}

bool is_ready(const Stream& stream, std::uint64_t happened) {
  if (stream.queue.empty() || stream.running_host_function || waits_for_others(stream, happened))
    return false;
  const Vector<Mark>& after = stream.queue.front().after;
  return std::all_of(after.begin(), after.end(), reached);
}

// The stream whose first op the mark cannot do without; null: another thread is running it.
Stream* pick_needed(Mark mark) {
  Stream* stream = mark.stream;
  for (;;) {
    if (stream->queue.empty() || stream->running_host_function) return nullptr;
    const Vector<Mark>& after = stream->queue.front().after;
    const auto blocks = std::find_if_not(after.begin(), after.end(), reached);
    if (blocks == after.end()) return stream;
    stream = blocks->stream;
  }
}

}  // namespace

void Runtime::something_happened() {
  ++happened_;
  changed_.notify_all();
}

Stream* Runtime::pick_any(Order::Kind order) {
  Stream* picked = nullptr;
  std::uint64_t seen = 0;
  for (Stream* stream : handles.streams()) {
    if (!is_ready(*stream, happened_)) continue;
    ++seen;
    const auto ticket = [](const Stream& of) { return of.queue.front().ticket; };
    const bool better = order == Order::Kind::random    ? random_.below(seen) == 0
                        : !picked                       ? true
                        : order == Order::Kind::reverse ? ticket(*picked) < ticket(*stream)
                                                        : ticket(*stream) < ticket(*picked);
    if (better) picked = stream;
  }
  return picked;
}

/// Runs one op that brings the mark nearer, or might have. False where another thread must first.
bool Runtime::step(Mark mark) {
  const Order::Kind order = options().streams.kind;
  Stream* stream = order == Order::Kind::forward ? pick_needed(mark) : pick_any(order);
  // What others do may be all that is missing.
  if (stream && waits_for_others(*stream, happened_)) stream = pick_any(order);
  if (stream) run_front(*stream);
  return stream != nullptr;
}

bool Runtime::poll(Mark mark) {
  if (!reached(mark)) step(mark);
  return reached(mark);
}

void Runtime::run_until(Mark mark) {
  while (!reached(mark)) {
    if (step(mark)) continue;
    std::unique_lock lock(mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  empty_graveyard();
}

void Runtime::run_everything(int device) {
  const auto behind = [&](const Stream* stream) {
    return stream->device == device && stream->done < stream->queued;
  };
  for (;;) {  // the list changes: destroyed streams leave it when they are done
    const Vector<Stream*>& streams = handles.streams();
    const auto found = std::find_if(streams.begin(), streams.end(), behind);
    if (found == streams.end()) break;
    wait_for(**found);
  }
  for (const Stream* stream : handles.streams()) {
    if (stream->device == device) race::host_waited(stream->clock);
  }
}

void Runtime::wait_for(Stream& stream) {
  run_until({&stream, stream.queued});
  race::host_waited(stream.clock);
}

void Runtime::wait_for(Event& event) {
  run_until(event.mark);
  race::host_waited(event.clock);
}

// ---- running it

// Whether it is over: then it may be taken from the queue.
bool Runtime::attend(Stream& stream, MeetWork& work) {
  bool moved = false;
  const std::shared_ptr<Meeting> meeting = work.meeting;  // a fault empties the queue
  const bool over = meeting->attend(stream, moved);
  if (moved) something_happened();
  if (stream.queue.empty()) return false;
  work.tried = happened_;
  return over;
}

void Runtime::run_front(Stream& stream) {
  auto* const meet = std::get_if<MeetWork>(&stream.queue.front().work);
  if (meet && !attend(stream, *meet)) return;
  const bool met = meet != nullptr;
  Op op = std::move(stream.queue.front());
  stream.queue.pop_front();
  std::string fault_text;
  if (!met) {
    race::begin_op(stream.slot, stream.id, op);
    try {
      execute(stream, op);
    } catch (const KernelFault& error) {
      fault_text = error.what();
    }
    const std::string race = race::end_op();
    if (fault_text.empty()) fault_text = race;
  }
  ++stream.done;
  changed_.notify_all();
  if (!fault_text.empty()) fault(stream.device, std::move(fault_text));
  handles.retire_if_over(stream);
}

void Runtime::execute(Stream& stream, Op& op) {
  struct Visitor {
    Runtime& all;
    Stream& stream;
    void operator()(JoinWork&) const {}
    void operator()(MeetWork&) const {}  // is over
    void operator()(LaunchWork& work) const {
      run_grid({work.name, work.call.get(), work.grid, work.block, work.shared_bytes});
    }
    void operator()(CopyWork& work) const { run_copy(work); }
    void operator()(FillWork& work) const {
      race::access_range(work.to, work.bytes, true);
      std::memset(work.to, work.value, work.bytes);
    }
    void operator()(HostWork& work) const { all.run_host_function(stream, work); }
    void operator()(RecordWork& work) const {
      if (work.event->generation != work.generation) return;
      work.event->timed = work.generation;
      work.event->when = std::chrono::steady_clock::now();
    }
  };
  std::visit(Visitor{*this, stream}, op.work);
}

// Without the lock: it may wait for another thread, which may queue work.
void Runtime::run_host_function(Stream& stream, const HostWork& work) {
  stream.running_host_function = true;
  mutex_.unlock();
  inside_host_function() = true;
  work.function(work.data);
  inside_host_function() = false;
  mutex_.lock();
  stream.running_host_function = false;
  changed_.notify_all();
}

void Runtime::fault(int device, std::string text) {
  Device& of = devices_[static_cast<std::size_t>(device)];
  if (of.fault.empty()) of.fault = std::move(text);
  for (Stream* stream : handles.streams()) {
    if (stream->device != device) continue;
    stream->done += stream->queue.size();
    stream->queue.clear();
  }
  something_happened();
}

}  // namespace simt
