#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/copies.h"
#include "simt/executor.h"
#include "simt/graph.h"
#include "simt/runtime.h"

// Streams: what is queued, and when it runs.

namespace simt {
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

bool Runtime::reached(Mark mark) const {
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
    forbid_beside_capture(stream);
    for (Stream* other : streams_) {
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
  return std::any_of(streams_.begin(), streams_.end(), [](const Stream* stream) {
    return !stream->queue.empty() || stream->running_host_function;
  });
}

// ---- what runs next

bool Runtime::is_ready(const Stream& stream) const {
  if (stream.queue.empty() || stream.running_host_function || waits_for_others(stream)) return false;
  const Vector<Mark>& after = stream.queue.front().after;
  return std::all_of(after.begin(), after.end(), [&](Mark mark) { return reached(mark); });
}

// Its first op is a meeting that would find nothing new.
bool Runtime::waits_for_others(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const auto* meet = std::get_if<MeetWork>(&stream.queue.front().work);
  return meet && meet->tried == happened_;
}

void Runtime::something_happened() {
  ++happened_;
  changed_.notify_all();
}

// The stream whose first op the mark cannot do without; null: another thread is running it.
Stream* Runtime::pick_needed(Mark mark) const {
  Stream* stream = mark.stream;
  for (;;) {
    if (stream->queue.empty() || stream->running_host_function) return nullptr;
    const Vector<Mark>& after = stream->queue.front().after;
    const auto blocks = std::find_if(after.begin(), after.end(), [&](Mark other) { return !reached(other); });
    if (blocks == after.end()) return stream;
    stream = blocks->stream;
  }
}

Stream* Runtime::pick_any(Order::Kind order) {
  Stream* picked = nullptr;
  std::uint64_t seen = 0;
  for (Stream* stream : streams_) {
    if (!is_ready(*stream)) continue;
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
  if (stream && waits_for_others(*stream)) stream = pick_any(order);
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
    const auto found = std::find_if(streams_.begin(), streams_.end(), behind);
    if (found == streams_.end()) break;
    wait_for(**found);
  }
  for (const Stream* stream : streams_) {
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
  if (stream.magic != Stream::kAlive && stream.queue.empty()) retire(stream);
}

void Runtime::execute(Stream& stream, Op& op) {
  struct Visitor {
    Runtime& all;
    Stream& stream;
    void operator()(JoinWork&) const {}
    void operator()(MeetWork&) const {}  // is over
    void operator()(LaunchWork& work) const {
      run_grid({work.name, work.call.get(), work.call.bytes(), work.grid, work.block, work.shared_bytes});
    }
    void operator()(CopyWork& work) const { run_copy(all, work); }
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
  for (Stream* stream : streams_) {
    if (stream->device != device) continue;
    stream->done += stream->queue.size();
    stream->queue.clear();
  }
  something_happened();
}

}  // namespace simt
