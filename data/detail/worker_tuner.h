#pragma once

namespace athanor::detail {

/// Finds a useful number of active threads by measuring the first 50 steps, then stops adjusting.
///
/// Its only input is step(). It evaluates five rounds of 10 steps; a step after a change, or after the
/// beginning of an epoch, does not count. After a round
/// - less than 3 % faster than the one before more threads were woken: back to the earlier number, and stops;
/// - that waited for more than 5 % of its time: half as many more, at least one;
/// - that waited for less than 1 %: as many as reading needs plus a quarter, if these are fewer;
/// - otherwise: unchanged.
class WorkerTuner {
 public:
  /// Tunes `threads` threads, of which `awake` work initially. With fewer than two it does nothing.
  WorkerTuner(int threads, int awake) : most_(threads), rounds_(threads > 1 ? kRounds : 0), awake_(awake) {}

  /// Running totals in seconds, each with its own origin.
  struct Clocks {
    double wall_s = 0;
    double waited_s = 0;  ///< of the consumer for data
    double busy_s = 0;    ///< of all threads together, reading
  };
  /// After every step; returns the number of threads to be active from now on.
  int step(const Clocks& now);
  /// Marks a gap between two steps, such as a validation, or a reset of the clocks.
  void pause() { follows_ = false; }
  bool rests() const { return rounds_ == 0; }

 private:
  static constexpr int kRounds = 5, kSteps = 10;

  void end_round();

  int most_, rounds_;
  int awake_;
  bool follows_ = false;  // the next step follows the one at last_
  Clocks last_;
  int steps_ = 0;           // of this round, so far
  Clocks round_;            // their durations
  double last_step_s_ = 0;  // of the round before more were woken; 0: none
  int before_ = 0;          // number of active threads then
};

}  // namespace athanor::detail
