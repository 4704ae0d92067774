#include "tensor/base/error.h"
#include "tensor/detail/device_memory.h"
#include "tensor/detail/stream_state.h"
#include "tensor/graph.h"
#include "tensor/pinned.h"

// Replaces tensor/cuda/ in a build without it: there is no device, and every request for one is an error.

namespace athanor {

struct cuda::Pool {};

namespace {

[[noreturn]] void no_backend(Device device) {
  detail::fail<BackendError>("device: {} is not available: {}", device.str(), why_no_cuda());
}

}  // namespace

int cuda_device_count() {
  return 0;
}
const std::string& why_no_cuda() {
  static const std::string why =
      "no CUDA in this build: configure with the preset cuda (or simt, which emulates it on the CPU), or "
      "use --device cpu";
  return why;
}
bool cuda_is_emulated() {
  return false;
}
const DeviceInfo& device_info(Device device) {
  no_backend(device);
}

Tensor empty_pinned(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, {dtype, kCpu});
}
bool is_pinned(const Tensor&) {
  return false;
}
PinnedStats pinned_stats() {
  return {};
}
void record_stream(const Tensor&, const Stream&) {}

void Graph::launch() const {}
std::size_t Graph::nodes() const {
  return 0;
}
GraphMemory::GraphMemory(Device device) {
  no_backend(device);
}
GraphMemory::~GraphMemory() = default;
Graph GraphMemory::capture(const std::function<void()>&) {
  no_backend(device_);
}
std::int64_t GraphMemory::held_bytes() const {
  return 0;
}
std::uint64_t GraphMemory::in_use() const {
  return 0;
}
GraphMemory::Use::Use(GraphMemory& memory) : device_(memory.device_) {
  no_backend(device_);
}
GraphMemory::Use::~Use() {
  (void)saved_;
}

namespace detail {

const char* cuda_device_name() {
  return "cuda";
}
void check_device(Device device) {
  no_backend(device);
}
Allocator& device_allocator(Device device) {
  no_backend(device);
}
void copy_device_bytes(void*, Device to, const void*, Device from, std::size_t, const Site&) {
  no_backend(to.is_cpu() ? from : to);
}
void set_device_bytes(void*, Device device, int, std::size_t) {
  no_backend(device);
}
Ref<StreamState> create_device_stream(Device device, StreamPriority) {
  no_backend(device);
}
StreamState& default_device_stream(Device device) {
  no_backend(device);
}
Ref<EventState> create_device_event(Device device, Event::Timing) {
  no_backend(device);
}
void synchronize_device(Device device) {
  no_backend(device);
}

}  // namespace detail
}  // namespace athanor
