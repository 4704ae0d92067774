#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor_log.h"
#include "tensor/base/counters.h"
#include "tensor/stream.h"

namespace athanor::cuda {

/// Times what can be queued on a context's stream, as a step would run it: the inputs in memory, not left
/// over in the cache from the run before. Owns its waits for the device; not for use while a stream is
/// captured.
class Stopwatch {
 public:
  explicit Stopwatch(CudaContext& context);

  /// Median milliseconds of run() over kRuns runs, after kWarmUp; infinity where the first already took over
  /// three times `best_ms`, the best of the candidates so far (0: none).
  template <class Run> double median_ms(double best_ms, Run&& run) {
    for (int i = 0; i < kWarmUp; ++i) run();
    time(0, 1, run);
    if (best_ms > 0 && elapsed(0) > 3 * best_ms) return kTooSlow;
    time(1, kRuns, run);
    return median();
  }

  static constexpr double kTooSlow = 1e30;

 private:
  static constexpr int kWarmUp = 2, kRuns = 9;

  template <class Run> void time(int begin, int end, Run& run) {
    for (int i = begin; i < end; ++i) {
      flush_cache();
      begin_[i].record(stream_);
      run();
      end_[i].record(stream_);
    }
    end_[end - 1].synchronize();
  }
  /// Reads more than the cache holds: writing would leave it full of what a run must first write back.
  void flush_cache() const;
  double elapsed(int i) const { return begin_[i].ms_until(end_[i]); }
  double median() const;

  CudaContext& context_;
  AllowSync allow_;  // planning waits for the device, and a warmed-up step does not plan
  Stream stream_;
  std::vector<Event> begin_, end_;
  Tensor flush_, sums_;
};

/// While alive, time counts as tuning (VendorStats::tuning_s). Where candidates will be measured, it begins
/// when the device has done what is queued: that is the time of training. Where one is made within another's
/// life (a candidate is our own kernel, which asks the vendor for a part), no second counts twice.
class TuningTime {
 public:
  /// `folder`: where results are kept.
  TuningTime(const CudaContext& context, VendorLog& log, const std::filesystem::path& folder, bool measures);
  ~TuningTime() { log_.stats.tuning_s = total_s(); }
  TuningTime(const TuningTime&) = delete;
  TuningTime& operator=(const TuningTime&) = delete;

  /// Between two candidates: the user may have waited for long.
  void tick() const { log_.tuning(total_s() - log_.stats.tuning_s, folder_.string()); }

 private:
  using Clock = std::chrono::steady_clock;
  /// What the log's time of tuning would be if it ended now.
  double total_s() const { return before_s_ + std::chrono::duration<double>(Clock::now() - began_).count(); }

  VendorLog& log_;
  const std::filesystem::path& folder_;
  double before_s_;
  Clock::time_point began_;
};

/// Whether the context's stream is being captured into a graph: nothing may wait for it then.
bool is_capturing(const CudaContext& context);

}  // namespace athanor::cuda
