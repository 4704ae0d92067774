#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/cuda/launch_listener.h"
#include "tensor/stream.h"
#include "trainer/plan/step_places.h"

namespace athanor::bench {

/// What the steps of a run are for, in this order.
struct StepPhases {
  std::int64_t warm = 4;      ///< plans are chosen, memory grows, graphs are captured
  std::int64_t steady = 30;   ///< timed as a whole: the host queues step after step
  std::int64_t alone = 10;    ///< the device is idle before each: what the host takes to queue one
  std::int64_t lead = 2;      ///< so that the device is behind the host again
  std::int64_t launches = 5;  ///< an event before and after each launch

  std::int64_t before_launches() const { return warm + steady + alone + lead; }
  std::int64_t steps() const { return before_launches() + launches; }
};

/// A launch within a step. Names live as long as the process.
struct TimedLaunch {
  const char* layer;
  const char* pass;
  const char* name;
  cuda::Queued kind;
  std::int64_t step;   ///< of those with events, 0 is the first
  std::int64_t bytes;  ///< of copies and fills
  double us;           ///< by the device's clock
};

/// The launch that a profiler outside sees alone: between cudaProfilerStart() and cudaProfilerStop().
struct ProfiledLaunch {
  std::string layer, pass, name;
};

/// Times the steps of a run on a GPU as StepPhases says. Owns its waits for the device, between steps. The
/// results of a phase are there when it ends, those of the launches after fit().
class StepTimer final : public StepPlaces, private cuda::LaunchListener {
 public:
  /// `profiled`: empty names match nothing. `on_phase` is called after the first step, in which plans are
  /// chosen, the steady steps, and those alone.
  StepTimer(const StepPhases& phases, Device device, ProfiledLaunch profiled = {},
            std::function<void(const StepTimer&)> on_phase = {});
  ~StepTimer() override;

  void on_step_begin(Trainer& trainer, const StepInfo& info) override;
  void on_step_end(Trainer& trainer, const StepInfo& info) override;
  void on_train_end(Trainer& trainer) override;
  void on_note(Trainer&, const std::string& note) override { notes.push_back(note); }

  std::vector<std::string> notes;   ///< what the run said, of refused plans among others
  std::vector<double> steady_ms;    ///< of each steady step, by the device's clock
  std::vector<double> host_ms;      ///< to queue a step
  std::vector<double> launches_ms;  ///< of each step with events
  std::vector<TimedLaunch> launches;
  std::int64_t steady_syncs = 0, steady_allocations = 0, steady_plans = 0;
  bool profiled_launch_ran = false;

 private:
  struct Counters {
    std::int64_t syncs = 0, allocations = 0, plans = 0;
  };
  Counters counters() const;
  void wait() const;
  void mark(std::size_t step);
  void stop_timing();
  cudaEvent_t next_event();

  bool listens_to(std::int64_t attempted) const override;
  void before_launch(const char* name, cuda::Queued kind, cudaStream_t stream, std::size_t bytes) override;
  void after_launch(cudaStream_t stream) noexcept override;

  StepPhases phases_;
  Device device_;
  ProfiledLaunch profiled_;
  std::function<void(const StepTimer&)> on_phase_;
  cudaEvent_t end_ = nullptr;         // of this launch
  cudaError_t failed_ = cudaSuccess;  // an event, after a launch
  bool profiling_ = false;            // this launch
  std::int64_t step_ = 0;             // of those with events
  Counters before_;
  std::vector<Event> steps_;        // the end of the last warm step, and of each steady one
  std::vector<Event> timed_steps_;  // the beginning of the first step with events, and the end of each
  std::vector<Event> events_;       // two for each launch
  std::chrono::steady_clock::time_point began_;
};

}  // namespace athanor::bench
