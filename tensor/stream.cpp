#include "tensor/stream.h"

#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/detail/stream_state.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

/// On the CPU, all work before record() is already done.
class CpuEvent final : public detail::EventState {
 public:
  explicit CpuEvent(Event::Timing timing) : timing_(timing) {}

  void* native() const override { return nullptr; }
  void record(const Stream&) override {
    if (timing_ == Event::Timing::on) at_ = Clock::now();
  }
  bool done() const override { return true; }
  void synchronize() const override {}
  double ms_until(const EventState& later) const override {
    const auto& end = static_cast<const CpuEvent&>(later).at_;
    ATH_CHECK(at_ && end, "event: both events must be created with Timing::on and recorded");
    return std::chrono::duration<double, std::milli>(*end - *at_).count();
  }

 private:
  Event::Timing timing_;
  std::optional<Clock::time_point> at_;
};

// Null if the thread still uses the default. A StreamGuard keeps its entry alive.
constinit thread_local std::array<detail::StreamState*, detail::kMaxDevices> current{};

void check_same(Device a, Device b, const char* what) {
  ATH_CHECK(a == b, "event: to {}, both must be on one device, but got {} and {}", what, a.str(), b.str());
}

}  // namespace

detail::StreamState& detail::current_stream_state(Device device) {
  const auto index = static_cast<std::size_t>(device.index);
  if (index < current.size() && current[index]) return *current[index];
  return default_device_stream(device);
}

// Streams --------------------------------------------------------------------------------------------------

Stream Stream::create(Device device, StreamPriority priority) {
  return {device,
          device.is_cpu() ? nullptr : Ref<RefCounted>(detail::create_device_stream(device, priority))};
}

Stream Stream::default_of(Device device) {
  return {device, device.is_cpu() ? nullptr : Ref<RefCounted>(&detail::default_device_stream(device))};
}

Stream current_stream(Device device) {
  return {device, device.is_cpu() ? nullptr : Ref<RefCounted>(&detail::current_stream_state(device))};
}

detail::StreamState& Stream::state() const {
  return static_cast<detail::StreamState&>(*state_);
}

void* Stream::native() const {
  return state_ ? state().native : nullptr;
}

std::uint32_t Stream::id() const {
  return state_ ? state().id : 0;
}

void Stream::wait(const Event& event) const {
  if (state_ && event.device_.is_cuda()) state().wait(event.state());
}

void Stream::synchronize(const Site& site) const {
  count_host_sync("stream", site);
  if (state_) state().synchronize();
}

StreamGuard::StreamGuard(const Stream& stream) : saved_(current_stream(stream.device())) {
  if (!stream.state_) return;
  stream.state_->retain();
  current[static_cast<std::size_t>(stream.device().index)] = &stream.state();
}

StreamGuard::~StreamGuard() {
  if (!saved_.state_) return;
  std::exchange(current[static_cast<std::size_t>(saved_.device().index)], &saved_.state())->release();
}

void synchronize(Device device, const Site& site) {
  count_host_sync("synchronize", site);
  if (device.is_cuda()) detail::synchronize_device(device);
}

// Events ---------------------------------------------------------------------------------------------------

Event::Event(Device device, Timing timing) : device_(device) {
  if (device.is_cpu()) {
    state_ = make_ref<CpuEvent>(timing);
  } else {
    state_ = detail::create_device_event(device, timing);
  }
}

detail::EventState& Event::state() const {
  return static_cast<detail::EventState&>(*state_);
}

void* Event::native() const {
  return state().native();
}

void Event::record(const Stream& stream) {
  check_same(device_, stream.device(), "be recorded");
  state().record(stream);
}

bool Event::done() const {
  return state().done();
}

void Event::synchronize(const Site& site) const {
  count_host_sync("event", site);
  state().synchronize();
}

double Event::ms_until(const Event& later) const {
  check_same(device_, later.device_, "be compared");
  return state().ms_until(later.state());
}

}  // namespace athanor
