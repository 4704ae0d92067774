#pragma once

#include <cstdint>
#include <utility>

namespace athanor::dist {

/// A rank's vote, once per step, on whether training continues.
struct StopVote {
  std::int32_t signal = 0;       ///< caught by the rank
  std::int16_t out_of_time = 0;  ///< only rank 0's clock counts
  std::int16_t save = 0;         ///< a checkpoint is requested; only rank 0's counts
  std::int32_t reason = -1;      ///< a number defined by the caller; -1: no reason to stop
  std::int32_t rank = 0;         ///< of an outcome: the rank with that reason

  bool stops() const { return signal != 0 || out_of_time != 0 || reason >= 0; }
};

/// Ranks agree once per step on whether it is made. Votes travel with the first message of the step in which
/// all ranks hear from each other (SyncOptions::agreement), and so cost no round trip of their own.
class StepAgreement {
 public:
  /// This rank's vote on the next step.
  void cast(const StopVote& vote) { vote_ = vote; }
  /// For its sender, once.
  StopVote take() { return std::exchange(vote_, {}); }
  /// Combines the votes of all ranks, `vote_of(rank)`: any signal, rank 0's time and checkpoint request, and
  /// the reason of the lowest rank that has one. The result is equal on all ranks.
  template <class VoteOf> const StopVote& settle(int ranks, const VoteOf& vote_of) {
    outcome_ = {};
    for (int rank = ranks; rank-- > 0;) {
      const StopVote& vote = vote_of(rank);
      outcome_.out_of_time = vote.out_of_time;  // finally rank 0's
      outcome_.save = vote.save;
      if (vote.signal != 0) outcome_.signal = vote.signal;
      if (vote.reason < 0) continue;
      outcome_.reason = vote.reason;
      outcome_.rank = rank;
    }
    return outcome_;
  }
  const StopVote& outcome() const { return outcome_; }

 private:
  StopVote vote_, outcome_;
};

}  // namespace athanor::dist
