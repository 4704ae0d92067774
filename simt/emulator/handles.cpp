#include "simt/emulator/handles.h"

#include "simt/emulator/runtime.h"

namespace simt {
namespace {
constexpr std::size_t kKeptDead = 1000;  // destroyed handles that are not made anew yet
}  // namespace

// A handle that is made anew keeps its counts, so that marks of its former life stay behind it.
Stream* Handles::make_stream(int device, unsigned flags) {
  Stream* stream = nullptr;
  if (dead_streams_.size() > kKeptDead) {
    stream = dead_streams_.front();
    dead_streams_.pop_front();
  } else {
    stream = new (MallocAllocator<Stream>().allocate(1)) Stream;
    stream->slot = slots_++;
  }
  stream->magic = Stream::kAlive;
  stream->device = device;
  stream->flags = flags;
  stream->priority = 0;
  stream->id = new_id();
  stream->of_graph = false;
  streams_.push_back(stream);
  return stream;
}

void Handles::drop_stream(Stream& stream) {
  stream.magic = 0;
  retire_if_over(stream);
}

void Handles::retire_if_over(Stream& stream) {
  if (stream.magic == Stream::kAlive || !stream.queue.empty() || stream.running_host_function) return;
  std::erase(streams_, &stream);
  dead_streams_.push_back(&stream);
}

Event* Handles::make_event(int device, unsigned flags) {
  Event* event = nullptr;
  if (dead_events_.size() > kKeptDead) {
    event = dead_events_.front();
    dead_events_.pop_front();
  } else {
    event = new (MallocAllocator<Event>().allocate(1)) Event;
  }
  event->magic = Event::kAlive;
  event->device = device;
  event->flags = flags;
  event->mark = {};
  event->clock.clear();
  event->capture_id = 0;
  event->captured.clear();
  return event;
}

void Handles::drop_event(Event& event) {
  event.magic = 0;
  dead_events_.push_back(&event);
}

}  // namespace simt
