#pragma once

#include <cstdint>
#include <span>

namespace athanor::dist {

/// What a rank says once a step on whether training goes on. It travels with the norm of the gradients:
/// GradientSync::reduce().
struct StopVote {
  std::int32_t signal = 0;       ///< that the rank has caught
  std::int16_t out_of_time = 0;  ///< only rank 0's clock counts
  std::int16_t save = 0;         ///< a checkpoint is wanted now; only rank 0 is asked
  std::int32_t reason = -1;      ///< a number of the caller's; -1: there is none to stop
  std::int32_t rank = 0;         ///< set by outcome(): whose reason it is

  bool stops() const { return signal != 0 || out_of_time != 0 || reason >= 0; }
};

/// Of the votes of all ranks, in their order: any signal, rank 0's time and wish to save, and the reason of
/// the lowest rank that has one. The same on all ranks.
inline StopVote outcome(std::span<const StopVote> votes) {
  StopVote all;
  for (std::size_t rank = votes.size(); rank-- > 0;) {
    const StopVote& vote = votes[rank];
    all.out_of_time = vote.out_of_time;  // in the end, rank 0's
    all.save = vote.save;
    if (vote.signal != 0) all.signal = vote.signal;
    if (vote.reason < 0) continue;
    all.reason = vote.reason;
    all.rank = static_cast<std::int32_t>(rank);
  }
  return all;
}

}  // namespace athanor::dist
