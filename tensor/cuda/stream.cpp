#include "tensor/stream.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "tensor/cuda/capture.h"
#include "tensor/cuda/device.h"
#include "tensor/detail/stream_state.h"

// Driver streams and events are created once and reused between handles: creation takes microseconds and may
// wait for the device. Memory cached for a stream also stays usable for its next owner.

namespace athanor {
namespace {

/// Unowned native handles. Releasing one allocates nothing: capacity is reserved at creation.
template <class Handle> class Spare {
 public:
  template <class Create> Handle take(const Create& create) {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const Handle handle = free_.back();
      free_.pop_back();
      return handle;
    }
    free_.reserve(made_ + 1);
    const Handle handle = create(made_);
    ++made_;
    return handle;
  }
  void give_back(Handle handle) noexcept {
    std::lock_guard lock(mutex_);
    free_.push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::vector<Handle> free_;
  std::uint32_t made_ = 0;
};

struct NativeStream {
  cudaStream_t stream;
  std::uint32_t id;
  StreamPriority priority;
};

/// Of one device; never destroyed, as events and streams are also released during exit.
struct Spares {
  Spare<NativeStream> streams[2];  // by StreamPriority
  Spare<cudaEvent_t> events[2];    // without and with timing
  std::mutex mutex;
  std::atomic<detail::StreamState*> default_stream{nullptr};
};

Spares& spares_of(Device device) {
  static auto* const all = new std::array<Spares, detail::kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device.index)];
}

class CudaEvent final : public detail::EventState {
 public:
  CudaEvent(Device device, Event::Timing timing)
      : device_(device), timing_(timing), event_(spare().take([&](std::uint32_t) {
          const cuda::DeviceGuard guard(device_);
          cudaEvent_t event = nullptr;
          ATH_TRY(cudaEventCreateWithFlags(
              &event, timing_ == Event::Timing::on ? cudaEventDefault : cudaEventDisableTiming));
          return event;
        })) {}

  void* native() const override { return event_; }
  bool recorded() const { return recorded_; }

  void record(const Stream& stream) override {
    ATH_TRY(cudaEventRecord(event_, static_cast<cudaStream_t>(stream.native())));
    recorded_ = true;
  }
  bool done() const override {
    if (!recorded_) return true;
    cuda::refuse_wait_in_capture("event");  // a query has the same effect as a wait
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    detail::check_status(status, "cudaEventQuery", Site::current());
    return true;
  }
  void synchronize() const override {
    if (!recorded_) return;
    cuda::refuse_wait_in_capture("event");
    ATH_TRY(cudaEventSynchronize(event_));
  }
  double ms_until(const EventState& later) const override {
    const auto& end = static_cast<const CudaEvent&>(later);
    ATH_CHECK(recorded_ && end.recorded_ && timing_ == Event::Timing::on && end.timing_ == Event::Timing::on,
              "event: both events must be created with Timing::on and recorded");
    float ms = 0;
    ATH_TRY(cudaEventElapsedTime(&ms, event_, end.event_));
    return ms;
  }

 private:
  ~CudaEvent() override { spare().give_back(event_); }
  Spare<cudaEvent_t>& spare() const { return spares_of(device_).events[timing_ == Event::Timing::on]; }

  Device device_;
  Event::Timing timing_;
  bool recorded_ = false;
  cudaEvent_t event_;
};

class CudaStream final : public detail::StreamState {
 public:
  CudaStream(Device where, NativeStream made)
      : StreamState(where, made.stream, made.id), priority_(made.priority) {}

  void wait(const detail::EventState& event) override {
    const auto& mark = static_cast<const CudaEvent&>(event);
    if (!mark.recorded()) return;  // the native event may still hold a previous record
    ATH_TRY(cudaStreamWaitEvent(stream(), static_cast<cudaEvent_t>(mark.native()), 0));
  }
  void synchronize() override {
    cuda::refuse_wait_in_capture("stream");
    ATH_TRY(cudaStreamSynchronize(stream()));
  }

 private:
  ~CudaStream() override {
    spares_of(device).streams[static_cast<std::size_t>(priority_)].give_back({stream(), id, priority_});
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(native); }

  StreamPriority priority_;
};

}  // namespace

// Captures -------------------------------------------------------------------------------------------------

bool cuda::is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ATH_TRY(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

bool cuda::may_be_capturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

// A device without a default stream was never used: a StreamGuard would also create one.
bool cuda::thread_is_capturing() {
  for (std::int16_t i = 0; i < cuda_device_count(); ++i) {
    const Device device{DeviceType::cuda, i};
    if (!spares_of(device).default_stream.load(std::memory_order_acquire)) continue;
    if (is_capturing(static_cast<cudaStream_t>(athanor::detail::current_stream_state(device).native)))
      return true;
  }
  return false;
}

void cuda::refuse_wait_in_capture(const char* op) {
  if (!thread_is_capturing()) return;
  athanor::detail::fail<Error>(
      "{}: the host must not wait during a graph capture: captured work runs only when the graph is launched",
      op);
}

// Streams and events ---------------------------------------------------------------------------------------

Ref<detail::StreamState> detail::create_device_stream(Device device, StreamPriority priority) {
  check_device(device);
  const auto which = static_cast<std::size_t>(priority);
  // Non-blocking: does not synchronise with the driver's default stream, which libraries may use.
  const NativeStream native = spares_of(device).streams[which].take([&](std::uint32_t number) {
    const cuda::DeviceGuard guard(device);
    int lowest = 0, highest = 0;
    ATH_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    cudaStream_t stream = nullptr;
    ATH_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                         priority == StreamPriority::high ? highest : lowest));
    return NativeStream{stream, 2 * number + static_cast<std::uint32_t>(which), priority};
  });
  return make_ref<CudaStream>(device, native);
}

detail::StreamState& detail::default_device_stream(Device device) {
  check_device(device);
  std::atomic<StreamState*>& slot = spares_of(device).default_stream;
  if (StreamState* made = slot.load(std::memory_order_acquire)) return *made;
  std::lock_guard lock(spares_of(device).mutex);
  if (!slot.load()) {
    const Ref<StreamState> stream = create_device_stream(device, StreamPriority::normal);
    stream->retain();  // never released
    slot.store(stream.get(), std::memory_order_release);
  }
  return *slot.load();
}

Ref<detail::EventState> detail::create_device_event(Device device, Event::Timing timing) {
  check_device(device);
  return make_ref<CudaEvent>(device, timing);
}

void detail::synchronize_device(Device device) {
  check_device(device);
  cuda::refuse_wait_in_capture("synchronize");
  const cuda::DeviceGuard guard(device);
  ATH_TRY(cudaDeviceSynchronize());
}

}  // namespace athanor
