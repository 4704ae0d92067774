#include "simt/runtime.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/names.h"

namespace simt {
namespace {
constexpr std::size_t kKeptDead =
    1000;  // destroyed handles that are not made anew yet: using one can be told
}  // namespace

Runtime& runtime() {
  static Runtime& result = *new Runtime;  // never destroyed: memory is freed by destructors of statics too
  return result;
}

Runtime::Runtime() : random_(options().streams.seed) {
  for (int index = 0; index < options().devices; ++index) {
    devices_.emplace_back();
    devices_.back().default_stream = make_stream(index, cudaStreamDefault);
  }
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

bool& inside_host_function() {
  static thread_local bool inside = false;
  return inside;
}

// ---- handles

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

// A handle that is made anew keeps its counts, so that marks of its former life stay behind it.
Stream* Runtime::make_stream(int device, unsigned flags) {
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
  stream->id = next_id++;
  stream->of_graph = false;
  streams_.push_back(stream);
  return stream;
}

void Runtime::drop_stream(Stream& stream) {
  stream.magic = 0;
  if (stream.queue.empty() && !stream.running_host_function) retire(stream);
}

void Runtime::retire(Stream& stream) {
  std::erase(streams_, &stream);
  dead_streams_.push_back(&stream);
}

Event* Runtime::make_event(int device, unsigned flags) {
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

void Runtime::drop_event(Event& event) {
  event.magic = 0;
  dead_events_.push_back(&event);
}

// ---- calls of kernels

namespace {
// In front of each call; as wide as the alignment a call may need.
struct alignas(16) CallHeader {
  std::size_t bytes;
  std::uint32_t uses = 0;
};
}  // namespace

void* detail::call_memory(std::size_t bytes) {
  char* memory = MallocAllocator<char>().allocate(sizeof(CallHeader) + bytes);
  return new (memory) CallHeader{bytes} + 1;
}

std::uint32_t& CallRef::uses() {
  return (reinterpret_cast<CallHeader*>(call_) - 1)->uses;
}

std::size_t CallRef::bytes() const {
  return (reinterpret_cast<const CallHeader*>(call_) - 1)->bytes;
}

CallRef::~CallRef() {
  if (call_ && --uses() == 0) std::free(reinterpret_cast<CallHeader*>(call_) - 1);
}

// ---- errors

namespace {
// Plain arrays: a thread's last calls come after its thread_local destructors.
struct LastError {
  cudaError_t code, text_of;
  char text[4096];
};
thread_local LastError last;
}  // namespace

cudaError_t remember(cudaError_t code, const std::string& text) {
  last.code = last.text_of = code;
  const std::size_t length = std::min(text.size(), sizeof(last.text) - 1);
  std::memcpy(last.text, text.data(), length);
  last.text[length] = '\0';
  return code;
}

cudaError_t pending_fault(Runtime& all, int device) {
  if (device >= all.device_count()) return cudaSuccess;
  const std::string& fault = all.device(device).fault;
  return fault.empty() ? cudaSuccess : remember(cudaErrorLaunchFailure, fault);
}

}  // namespace simt

using namespace simt;

cudaError_t cudaPeekAtLastError() {
  const auto guard = runtime().lock();
  const cudaError_t fault = pending_fault(runtime(), current_device());
  return fault != cudaSuccess ? fault : last.code;
}

cudaError_t cudaGetLastError() {
  const auto guard = runtime().lock();
  const cudaError_t fault = pending_fault(runtime(), current_device());
  const cudaError_t code = fault != cudaSuccess ? fault : last.code;
  last.code = cudaSuccess;
  return code;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error != cudaSuccess && error == last.text_of ? last.text : error_description(error);
}

const char* cudaGetErrorName(cudaError_t error) {
  return error_name(error);
}
