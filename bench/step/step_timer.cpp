#include "bench/step/step_timer.h"

#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor.h"
#include "tensor/base/counters.h"
#include "tensor/base/trace.h"
#include "tensor/cuda/runtime.h"
#include "tensor/pinned.h"
#if !defined(ATHANOR_SIMT)
#include <cuda_profiler_api.h>
#endif

namespace athanor::bench {
namespace {

cudaError_t let_profiler_see(bool see) {
#if defined(ATHANOR_SIMT)
  (void)see;  // no profiler looks at emulated kernels
  return cudaSuccess;
#else
  return see ? cudaProfilerStart() : cudaProfilerStop();
#endif
}

cudaEvent_t native(const Event& event) {
  return static_cast<cudaEvent_t>(event.native());
}

}  // namespace

StepTimer::StepTimer(const StepPhases& phases, Device device, ProfiledLaunch profiled,
                     std::function<void(const StepTimer&)> on_phase)
    : phases_(phases), device_(device), profiled_(std::move(profiled)), on_phase_(std::move(on_phase)) {
  for (std::int64_t i = 0; i <= phases.steady; ++i) steps_.emplace_back(device, Event::Timing::on);
  for (std::int64_t i = 0; i <= phases.launches; ++i) timed_steps_.emplace_back(device, Event::Timing::on);
  events_.reserve(1 << 14);
  launches.reserve(1 << 13);
}

StepTimer::~StepTimer() {
  stop_timing();
}

StepTimer::Counters StepTimer::counters() const {
  return {host_syncs(), allocator_of(device_).stats().growths + pinned_stats().growths,
          cuda_context(device_).vendor().stats().plans_made};
}

void StepTimer::wait() const {
  const AllowSync between_steps;
  synchronize(device_);
}

void StepTimer::mark(std::size_t step) {
  steps_.at(step).record(current_stream(device_));
}

bool StepTimer::listens_to(std::int64_t attempted) const {
  return attempted >= phases_.before_launches();
}

void StepTimer::on_step_begin(Trainer& trainer, const StepInfo& info) {
  StepPlaces::on_step_begin(trainer, info);
  if (listens()) {
    if (info.attempted == phases_.before_launches()) timed_steps_[0].record(current_stream(device_));
    step_ = info.attempted - phases_.before_launches();
    cuda::detail::launch_listener = this;
  }
  began_ = std::chrono::steady_clock::now();
}

void StepTimer::on_step_end(Trainer& trainer, const StepInfo& info) {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began_;
  const bool timed = listens();
  StepPlaces::on_step_end(trainer, info);
  stop_timing();
  const std::int64_t done = info.attempted, steady = done - phases_.warm, alone = steady - phases_.steady;
  if (timed)
    timed_steps_.at(static_cast<std::size_t>(done - phases_.before_launches()))
        .record(current_stream(device_));
  if (alone > 0 && alone <= phases_.alone) host_ms.push_back(took.count());
  if (steady == 0) before_ = counters();
  if (steady >= 0 && alone <= 0) mark(static_cast<std::size_t>(steady));
  if (alone == 0) {
    const Counters now = counters();
    steady_syncs = now.syncs - before_.syncs;
    steady_allocations = now.allocations - before_.allocations;
    steady_plans = now.plans - before_.plans;
  }
  if (alone == 0 || (alone > 0 && alone < phases_.alone)) wait();
  if (alone == 0) {
    for (std::size_t i = 1; i < steps_.size(); ++i) steady_ms.push_back(steps_[i - 1].ms_until(steps_[i]));
  }
  // Not right before the steady steps: the device would wait for what is done here.
  const bool planned = done == 1 && phases_.warm > 1;
  if (on_phase_ && (planned || alone == 0 || alone == phases_.alone)) on_phase_(*this);
}

void StepTimer::stop_timing() {
  if (cuda::detail::launch_listener == this) cuda::detail::launch_listener = nullptr;
}

void StepTimer::on_train_end(Trainer& trainer) {
  StepPlaces::on_train_end(trainer);
  stop_timing();
  wait();
  ATH_TRY(failed_);
  for (std::size_t i = 1; i < timed_steps_.size(); ++i)
    launches_ms.push_back(timed_steps_[i - 1].ms_until(timed_steps_[i]));
  for (std::size_t i = 0; i < launches.size(); ++i) {
    float ms = 0;
    ATH_TRY(cudaEventElapsedTime(&ms, native(events_[2 * i]), native(events_[2 * i + 1])));
    launches[i].us = 1e3 * ms;
  }
}

cudaEvent_t StepTimer::next_event() {
  return native(events_.emplace_back(device_, Event::Timing::on));
}

void StepTimer::before_launch(const char* name, cuda::Queued kind, cudaStream_t stream, std::size_t bytes) {
  const Place place = place_of(name);
  launches.push_back(
      {interned_name(place.layer), place.pass, name, kind, step_, static_cast<std::int64_t>(bytes), 0});
  const cudaEvent_t begin = next_event();
  end_ = next_event();
  profiling_ = !profiled_launch_ran && profiled_.name == name && profiled_.layer == place.layer &&
               profiled_.pass == place.pass;
  if (profiling_) ATH_TRY(let_profiler_see(true));
  ATH_TRY(cudaEventRecord(begin, stream));
}

void StepTimer::after_launch(cudaStream_t stream) noexcept {
  const cudaError_t recorded = cudaEventRecord(end_, stream);
  if (recorded != cudaSuccess) failed_ = recorded;
  if (!profiling_) return;
  const cudaError_t seen = let_profiler_see(false);
  if (seen != cudaSuccess) failed_ = seen;
  profiling_ = false;
  profiled_launch_ran = true;
}

}  // namespace athanor::bench
