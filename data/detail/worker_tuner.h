#pragma once

namespace athanor::detail {

/// Finds how many of the threads are worth having awake, from what the first 50 steps show, and then rests.
///
/// All it knows of the world is what step() is told. It looks at five rounds of 10 steps; a step that follows
/// a change, or the beginning of an epoch, is of none. After a round
/// - that is not 3 % quicker than the one before more threads were woken: as many as then, and it rests;
/// - that waited for more than 5 % of its time: half as many more, at least one;
/// - that waited for less than 1 %: as many as the reading needs, and a quarter more, if these are fewer;
/// - else as many as before.
class WorkerTuner {
 public:
  /// `threads` there are, of which `awake` work. With fewer than two there is nothing to find.
  WorkerTuner(int threads, int awake) : most_(threads), rounds_(threads > 1 ? kRounds : 0), awake_(awake) {}

  /// Seconds, each counted from a beginning of its own.
  struct Clocks {
    double wall_s = 0;
    double waited_s = 0;  ///< that the consumer has waited for data
    double busy_s = 0;    ///< that threads have spent reading, all of them together
  };
  /// After every step; returns how many threads are to be awake from now on.
  int step(const Clocks& now);
  /// Between two steps lies what is none, such as a validation, or clocks begin anew.
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
  Clocks round_;            // what they took
  double last_step_s_ = 0;  // of the round before more were woken; 0: there was none
  int before_ = 0;          // threads awake then
};

}  // namespace athanor::detail
