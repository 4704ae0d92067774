#pragma once

#include <chrono>
#include <cstdint>

namespace athanor::detail {

class BatchReaders;

/// Finds how many of the threads are worth having awake, from what the first 50 steps show, and then rests.
class WorkerTuner {
 public:
  /// `threads` there are; 0: there is nothing to find.
  explicit WorkerTuner(int threads) : most_(threads), rounds_(threads > 1 ? kRounds : 0) {}

  /// After every step; `waited_s`: seconds that the consumer has waited for data since the epoch began.
  void step(BatchReaders& readers, double waited_s);

 private:
  static constexpr int kRounds = 5, kSteps = 10;

  void end_round(BatchReaders& readers, double wall_s, double waited_s);

  int most_, rounds_;
  int steps_ = 0;
  std::chrono::steady_clock::time_point began_;
  double waited_before_s_ = 0, busy_before_s_ = 0;
  double last_step_s_ = 0;  // of the round before the last change; 0: there was none
  int before_ = 0;          // threads awake then
};

}  // namespace athanor::detail
