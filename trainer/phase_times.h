#pragma once

#include <chrono>
#include <utility>

#include "trainer/bottleneck.h"

namespace athanor {

/// Measures the seconds of training; each counts for the innermost scope at the time. Validation and saving
/// include everything inside them.
///
///     PhaseTimes times(total);
///     const auto timed = times.scope(&Times::forward);
class PhaseTimes {
 public:
  using Part = double Times::*;

  /// Adds to `total`, which must outlive it.
  explicit PhaseTimes(Times& total) : total_(total) {}
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
    if (part_) total_.*part_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(part_, part);
  }

  Times& total_;
  Part part_ = nullptr;
  std::chrono::steady_clock::time_point since_;
};

/// Seconds since training began, over all processes of a resumed run.
class RunClock {
 public:
  void start() { began_ = Clock::now(); }
  /// Adds the time before a resume.
  void add(double seconds) {
    began_ -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

}  // namespace athanor
