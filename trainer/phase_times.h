#pragma once

#include <chrono>
#include <utility>

#include "kernels/vendor_stats.h"
#include "trainer/bottleneck.h"

namespace athanor {

/// Measures the seconds of training; each counts for the innermost scope at the time. Validation and saving
/// include everything inside them but tuning, which is a part of its own wherever it happens.
///
///     PhaseTimes times(total);
///     const auto timed = times.scope(&Times::forward);
class PhaseTimes {
 public:
  using Part = double Times::*;

  /// Adds to `total`, which must outlive it, as must the counters of this thread's device.
  explicit PhaseTimes(Times& total, const VendorStats& vendor = vendor_stats(kCpu))
      : total_(total), vendor_(vendor) {}
  PhaseTimes(const PhaseTimes&) = delete;
  PhaseTimes& operator=(const PhaseTimes&) = delete;

  class Scope {
   public:
    Scope(PhaseTimes& times, Part part)
        : times_(times), outer_(times.enter(times.whole() ? times.part_ : part)) {}
    ~Scope() { times_.enter(outer_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimes& times_;
    Part outer_;
  };
  [[nodiscard]] Scope scope(Part part) { return {*this, part}; }

  /// Moves seconds that were charged to one part but belong to another.
  void move(double seconds, Part from, Part to) {
    total_.*from -= seconds;
    total_.*to += seconds;
  }
  const Times& total() const { return total_; }

 private:
  bool whole() const { return part_ == &Times::validation || part_ == &Times::saving; }
  Part enter(Part part) {
    const auto now = std::chrono::steady_clock::now();
    const double tuned = vendor_.tuning_s - tuned_s_;
    if (part_) {
      total_.*part_ += std::chrono::duration<double>(now - since_).count() - tuned;
      total_.tuning += tuned;
    }
    since_ = now;
    tuned_s_ = vendor_.tuning_s;
    return std::exchange(part_, part);
  }

  Times& total_;
  const VendorStats& vendor_;
  double tuned_s_ = 0;  // until since_
  Part part_ = nullptr;
  std::chrono::steady_clock::time_point since_;
};

/// Seconds since training began, over all processes of a resumed run, without those of tuning
/// (VendorStats::tuning_s): a run takes the same time whether its plans were in the plan directory or not.
class RunClock {
 public:
  /// Of this thread, which keeps the counters.
  explicit RunClock(const VendorStats& vendor = vendor_stats(kCpu)) : vendor_(vendor) { start(); }
  void start() {
    began_ = Clock::now();
    tuned_s_ = vendor_.tuning_s;
  }
  /// Adds the time before a resume.
  void add(double seconds) {
    began_ -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - began_).count() - (vendor_.tuning_s - tuned_s_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const VendorStats& vendor_;
  Clock::time_point began_;
  double tuned_s_ = 0;  // before
};

}  // namespace athanor
