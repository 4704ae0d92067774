#include "optim/step_buffer.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/pinned.h"

namespace athanor {
namespace {

constexpr auto kBytes = static_cast<std::int64_t>(sizeof(StepState));

template <std::size_t... I> std::array<Event, sizeof...(I)> events(Device device, std::index_sequence<I...>) {
  return {((void)I, Event(device))...};
}

}  // namespace

StepBuffer::StepBuffer(Device device, const StepState& initial)
    : device_(device), host_(initial), arrived_(events(device, std::make_index_sequence<kLead>())) {
  if (device_.is_cpu()) return;
  const AllocTag named("optimizer");
  memory_ = Tensor::empty({kBytes}, {DType::u8, device_});
  for (Tensor& letter : letters_) letter = empty_pinned({kBytes}, DType::u8);
  write(initial);
}

StepState* StepBuffer::data() const {
  return device_.is_cpu() ? &host_ : reinterpret_cast<StepState*>(memory_.raw_data());
}

StepState* StepBuffer::operator->() {
  ATH_CHECK(device_.is_cpu(), "step: the state of {} is not on the host; use known() or read()",
            device_.str());
  return &host_;
}

void StepBuffer::write(const StepState& state) {
  if (!device_.is_cpu()) {
    const auto bytes = std::as_bytes(std::span(&state, 1));
    memory_.copy_bytes_from(Tensor::from_bytes(bytes, {kBytes}, {DType::u8, kCpu}));
    pending_ = 0;  // states in flight are outdated
  }
  host_ = state;
}

StepState StepBuffer::read(const Site& site) const {
  if (device_.is_cpu()) {
    count_host_sync("step", site);
    return host_;
  }
  const Tensor copy = memory_.to(kCpu, site);
  StepState state;
  std::memcpy(&state, copy.raw_data(), sizeof state);
  return state;
}

const StepState& StepBuffer::known() const {
  if (pending_ > 0) collect(false);
  return host_;
}

void StepBuffer::publish() {
  if (device_.is_cpu()) {
    if (listener_) listener_(host_);
    return;
  }
  if (pending_ == kLead) collect(true);
  const auto at = static_cast<std::size_t>((first_ + pending_) % kLead);
  letters_[at].copy_bytes_from(memory_);
  arrived_[at].record(current_stream(device_));
  ++pending_;
}

// Collects every state that has arrived; waits for the oldest if there is no room for another. That wait
// keeps the host from running too far ahead, so it is not the step's stall.
void StepBuffer::collect(bool wait) const {
  const AllowSync allow;
  for (; pending_ > 0; wait = false) {
    const auto at = static_cast<std::size_t>(first_);
    if (wait) {
      const auto began = std::chrono::steady_clock::now();
      arrived_[at].synchronize();
      waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    if (!arrived_[at].done()) return;
    std::memcpy(&host_, letters_[at].raw_data(), sizeof host_);
    --pending_;
    first_ = (first_ + 1) % kLead;
    if (listener_) listener_(host_);
  }
}

}  // namespace athanor
