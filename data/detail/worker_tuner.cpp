#include "data/detail/worker_tuner.h"

#include <algorithm>
#include <cmath>

namespace athanor::detail {

int WorkerTuner::step(const Clocks& now) {
  if (rests()) return awake_;
  if (follows_) {
    round_.wall_s += now.wall_s - last_.wall_s;
    round_.waited_s += now.waited_s - last_.waited_s;
    round_.busy_s += now.busy_s - last_.busy_s;
    ++steps_;
  }
  last_ = now;
  follows_ = steps_ < kSteps;
  if (!follows_) end_round();
  return awake_;
}

void WorkerTuner::end_round() {
  --rounds_;
  const double waits = round_.waited_s / round_.wall_s, step_s = round_.wall_s / kSteps;
  const double busy = round_.busy_s / round_.wall_s;  // in units of threads
  steps_ = 0;
  round_ = {};
  if (last_step_s_ > 0 && step_s > 0.97 * last_step_s_) {  // more threads did not help
    awake_ = before_;
    rounds_ = 0;
  } else if (waits > 0.05 && awake_ < most_) {
    last_step_s_ = step_s;
    before_ = awake_;
    awake_ = std::min(most_, awake_ + std::max(1, awake_ / 2));
  } else {
    last_step_s_ = 0;
    const int enough = std::max(1, static_cast<int>(std::ceil(1.25 * busy)));
    if (waits < 0.01) awake_ = std::min(awake_, enough);
  }
}

}  // namespace athanor::detail
