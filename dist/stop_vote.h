#pragma once

#include <cstdint>
#include <span>

namespace athanor::dist {

/// A rank's vote, once per step, on whether training continues. It is sent with the norm of the gradients:
/// GradientSync::reduce().
struct StopVote {
  std::int32_t signal = 0;       ///< caught by the rank
  std::int16_t out_of_time = 0;  ///< only rank 0's clock counts
  std::int16_t save = 0;         ///< a checkpoint is requested; only rank 0's counts
  std::int32_t reason = -1;      ///< a number defined by the caller; -1: no reason to stop
  std::int32_t rank = 0;         ///< set by outcome(): the rank with that reason

  bool stops() const { return signal != 0 || out_of_time != 0 || reason >= 0; }
};

/// Combines the votes of all ranks, in rank order: any signal, rank 0's time and checkpoint request, and the
/// reason of the lowest rank that has one. Equal on all ranks.
inline StopVote outcome(std::span<const StopVote> votes) {
  StopVote all;
  for (std::size_t rank = votes.size(); rank-- > 0;) {
    const StopVote& vote = votes[rank];
    all.out_of_time = vote.out_of_time;  // finally rank 0's
    all.save = vote.save;
    if (vote.signal != 0) all.signal = vote.signal;
    if (vote.reason < 0) continue;
    all.reason = vote.reason;
    all.rank = static_cast<std::int32_t>(rank);
  }
  return all;
}

}  // namespace athanor::dist
