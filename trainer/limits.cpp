#include "trainer/limits.h"

#include <utility>

#include <fmt/format.h>

#include "trainer/readable.h"

namespace athanor {

void Limits::stop(Ended how) {
  if (!ended_ && !wanted_) wanted_ = std::move(how);
}

void Limits::end(Ended how) {
  if (!ended_) ended_ = std::move(how);
}

dist::StopVote Limits::vote(bool between_steps) {
  dist::StopVote vote{.signal = signals_.caught()};
  if (between_steps) {
    const double now_s = clock_.seconds();
    vote.out_of_time = now_s >= config_.max_time_s;
    vote.save = signals_.take_save_request() || now_s - saved_at_s_ >= config_.checkpoint_every_s;
  }
  if (wanted_) vote.reason = static_cast<std::int32_t>(wanted_->reason);
  return vote;
}

void Limits::after_step(std::int64_t attempted) {
  take(strategy_.cast(vote(true)));
  // Limits that all ranks can evaluate by themselves.
  const auto reaches = [attempted](std::int64_t most) { return most > 0 && attempted >= most; };
  if (reaches(config_.max_steps) || reaches(config_.fast_dev_run)) end({StoppedBy::max_steps});
}

bool Limits::take(const dist::StopVote& outcome) {
  save_requested_ |= outcome.save != 0;
  if (outcome.reason >= 0) {
    const auto reason = static_cast<StoppedBy>(outcome.reason);
    if (ended_ && ended_->reason != reason) ended_.reset();  // other ranks agreed on another reason before
    const bool mine = wanted_ && wanted_->reason == reason;
    end({reason, mine ? wanted_->why : fmt::format("rank {} has stopped the run", outcome.rank)});
  }
  if (outcome.signal != 0) {
    signal_ = outcome.signal;
    end({StoppedBy::signal});
  }
  if (outcome.out_of_time != 0)
    end({StoppedBy::max_time, fmt::format("--max-time is reached, after {}", duration(clock_.seconds()))});
  return outcome.stops();
}

void Limits::diverged(std::string why) {
  ended_ = {StoppedBy::diverged, std::move(why)};
}

void Limits::agree(bool between_steps) {
  take(strategy_.agree(vote(between_steps)));
}

}  // namespace athanor
