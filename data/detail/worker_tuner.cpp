#include "data/detail/worker_tuner.h"

#include <algorithm>
#include <cmath>

#include "data/detail/batch_readers.h"

namespace athanor::detail {

void WorkerTuner::step(BatchReaders& readers, double waited_s) {
  if (rounds_ == 0) return;
  const auto now = std::chrono::steady_clock::now();
  // A new epoch begins with validation behind it, and waits are counted anew.
  if (steps_ == 0 || waited_s < waited_before_s_) {
    steps_ = 1;
    began_ = now;
    waited_before_s_ = waited_s;
    busy_before_s_ = readers.work().busy_s;
    return;
  }
  if (++steps_ <= kSteps) return;
  end_round(readers, std::chrono::duration<double>(now - began_).count(), waited_s - waited_before_s_);
  steps_ = 0;
}

void WorkerTuner::end_round(BatchReaders& readers, double wall_s, double waited_s) {
  --rounds_;
  const int awake = readers.awake();
  const double waits = waited_s / wall_s, step_s = wall_s / kSteps;
  if (last_step_s_ > 0 && step_s > 0.97 * last_step_s_) {  // more threads were of no use
    readers.set_awake(before_);
    rounds_ = 0;
  } else if (waits > 0.05 && awake < most_) {
    last_step_s_ = step_s;
    before_ = awake;
    readers.set_awake(std::min(most_, awake + std::max(1, awake / 2)));
  } else if (waits < 0.01) {
    const double busy = (readers.work().busy_s - busy_before_s_) / wall_s;  // threads' worth of work
    const int enough = std::max(1, static_cast<int>(std::ceil(1.25 * busy)));
    last_step_s_ = 0;
    if (enough < awake) readers.set_awake(enough);
  } else {
    last_step_s_ = 0;
  }
}

}  // namespace athanor::detail
