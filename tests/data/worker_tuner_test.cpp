#include "data/detail/worker_tuner.h"

#include <vector>

#include <gtest/gtest.h>

namespace athanor::detail::worker_tuner_test {

/// What the steps of a round are like, and how many threads are awake after it.
struct Round {
  double step_ms;
  double waits;  // for data: the part of a step
  double busy;   // threads that read, on average
  int awake;
};

struct Case {
  const char* what;
  int threads, awake;  // to begin with
  std::vector<Round> rounds;
  bool rests = false;  // after them
};

/// Tells a tuner of steps, by clocks that a test makes up.
class Steps {
 public:
  /// An epoch has `of_epoch` steps.
  Steps(const Case& c, int of_epoch) : tuner_(c.threads, c.awake), of_epoch_(of_epoch) {}

  int step(double step_s, double waits, double busy) {
    if (done_ > 0 && done_ % of_epoch_ == 0) begin_epoch();
    ++done_;
    return tell(step_s, waits, busy);
  }
  /// Of no round: looked at, it would upset whatever is found out.
  int uncounted_step() { return tell(1, done_ % 2, 100); }

  bool rests() const { return tuner_.rests(); }

 private:
  int tell(double step_s, double waits, double busy) {
    clocks_.wall_s += step_s;
    clocks_.waited_s += waits * step_s;
    clocks_.busy_s += busy * step_s;
    return tuner_.step(clocks_);
  }
  // After a validation, during which threads have read ahead.
  void begin_epoch() {
    clocks_.wall_s += 100;
    clocks_.busy_s += 30;
    clocks_.waited_s = 0;
    tuner_.pause();
    uncounted_step();
  }

  WorkerTuner tuner_;
  int of_epoch_, done_ = 0;
  WorkerTuner::Clocks clocks_{.wall_s = 1e5, .waited_s = 7, .busy_s = 3};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"more while they help, by a half, as far as there are",
       16,
       1,
       {{10, 0.9, 1, 2}, {5, 0.8, 2, 3}, {3.4, 0.7, 3, 4}, {2.6, 0.6, 4, 6}, {1.8, 0.5, 6, 9}},
       true},
      {"by a half of many", 16, 9, {{10, 0.9, 9, 13}, {7, 0.9, 13, 16}, {6, 0.9, 16, 16}}},
      {"at most all", 4, 3, {{10, 0.9, 3, 4}, {7, 0.9, 4, 4}, {7, 0.9, 4, 4}}},
      {"of no use: as many as before, for good",
       16,
       4,
       {{10, 0.5, 4, 6}, {9.71, 0.5, 4, 4}, {10, 0.9, 4, 4}, {10, 0, 0, 4}},
       true},
      {"of a little use: they stay", 16, 4, {{10, 0.5, 4, 6}, {9.69, 0.5, 6, 9}}},
      {"of no use at last: as many as the round before",
       16,
       4,
       {{10, 0.5, 4, 6}, {8, 0.5, 6, 9}, {8, 0.5, 6, 6}},
       true},
      {"of no use, where nothing is waited for any more", 8, 2, {{10, 0.06, 2, 3}, {9.8, 0, 1, 2}}, true},
      {"waits a little", 8, 4, {{10, 0.049, 1, 4}, {10, 0.011, 1, 4}, {10, 0.049, 4, 4}}},
      {"waits enough", 8, 4, {{10, 0.051, 1, 6}}},
      {"waits for nothing, and one does it all", 8, 4, {{10, 0.009, 0.79, 1}}},
      {"one is always there", 8, 4, {{10, 0, 0, 1}, {10, 0, 0, 1}}},
      {"a quarter more than the reading needs", 8, 4, {{10, 0, 1.61, 3}, {10, 0, 1.59, 2}}},
      {"busy, and in time", 8, 4, {{10, 0, 3.9, 4}, {10, 0, 3.1, 4}}},
      {"slower with fewer, which is no verdict on more", 8, 4, {{10, 0, 0.5, 1}, {20, 0.5, 1, 2}}},
      {"slower, a round after more were woken", 8, 2, {{10, 0.5, 2, 3}, {9, 0.03, 3, 3}, {12, 0.5, 3, 4}}},
      {"slower, when all are awake", 3, 2, {{10, 0.5, 2, 3}, {9, 0.5, 3, 3}, {12, 0.5, 3, 3}}},
      {"slower, after fewer", 8, 2, {{10, 0.5, 2, 3}, {5, 0, 0.5, 1}, {20, 0.5, 1, 2}}},
      {"five rounds, and no more",
       8,
       2,
       {{10, 0.03, 2, 2},
        {10, 0.03, 2, 2},
        {10, 0.03, 2, 2},
        {10, 0.03, 2, 2},
        {10, 0.03, 2, 2},
        {10, 0.9, 2, 2}},
       true},
      {"four rounds", 8, 2, {{10, 0.03, 2, 2}, {10, 0.03, 2, 2}, {10, 0.03, 2, 2}, {10, 0.03, 2, 2}}},
      {"two threads", 2, 1, {{10, 0.9, 1, 2}}},
      {"one thread", 1, 1, {{10, 0.9, 1, 1}, {10, 0, 0, 1}}, true},
      {"no thread", 0, 0, {{10, 1, 0, 0}}, true},
  };
  return all;
}

TEST(WorkerTuner, FindsItsNumberByTheTable) {
  for (const int of_epoch : {1000, 10, 3, 1}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(testing::Message() << c.what << ", " << of_epoch << " steps in an epoch");
      Steps steps(c, of_epoch);
      int before = c.awake;
      for (std::size_t i = 0; i < c.rounds.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "round " << i);
        const Round& round = c.rounds[i];
        EXPECT_EQ(steps.uncounted_step(), before) << "the first step";
        for (int step = 1; step <= 10; ++step) {
          const int awake = steps.step(1e-3 * round.step_ms, round.waits, round.busy);
          EXPECT_EQ(awake, step < 10 ? before : round.awake) << "after step " << step;
        }
        before = round.awake;
      }
      EXPECT_EQ(steps.rests(), c.rests);
    }
  }
}

// Only all steps of a round together say something, not one of them.
TEST(WorkerTuner, MeasuresAWholeRound) {
  Steps steps({"", 8, 2, {}}, 1000);
  steps.uncounted_step();
  for (int step = 0; step < 9; ++step) EXPECT_EQ(steps.step(0.010, 0, 1.7), 2);
  EXPECT_EQ(steps.step(0.010, 0.49, 1.7), 2) << "4.9 % of the round";
  EXPECT_FALSE(steps.rests());
}

}  // namespace athanor::detail::worker_tuner_test
