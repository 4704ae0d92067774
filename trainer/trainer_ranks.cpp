// What a Trainer decides together with the other ranks.

#include <algorithm>

#include "data/detail/cores.h"
#include "dist/watchdog.h"
#include "trainer/trainer.h"

namespace athanor {

// Ranks must leave the same loop at the same step: whatever may end training is decided here, from what all
// of them have seen. One rank decides alone, at no cost.
void Trainer::agree(bool out_of_time) {
  Ranks::Wish wish{.signal = signals_->caught(), .out_of_time = out_of_time};
  if (stopping_) wish.stop = static_cast<std::int32_t>(reason_);
  const Ranks::Wish all = ranks_.agree(wish);
  if (auto* watchdog = dist::Watchdog::current()) watchdog->agreed(all.signal != 0);
  if (all.stop >= 0 && !(stopping_ && reason_ == static_cast<StoppedBy>(all.stop))) {
    stopping_ = true;
    reason_ = static_cast<StoppedBy>(all.stop);
    why_stopped_ = fmt::format("rank {} has stopped it", all.from);
  }
  if (all.signal != 0) stop(StoppedBy::signal);
  if (all.out_of_time != 0) stop(StoppedBy::max_time);
}

/// Of the CPU for this rank; 0: as they are.
int Trainer::threads() const {
  if (config_.threads > 0) return config_.threads;
  return config_.local_ranks > 1 ? std::max(1, detail::usable_cores() / config_.local_ranks) : 0;
}

}  // namespace athanor
