#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dist/watch/rank_record.h"

namespace athanor::dist {

/// The chain of "waits for" from a waiting rank, through ranks that wait themselves, to the culprit. A rank
/// still in an earlier collective has not reached the later one because of the rank it waits for in the
/// earlier one.
struct WaitChain {
  enum class End {
    circle,     ///< the last rank occurs twice: they wait for each other
    no_record,  ///< the last rank has no readable record
    nobody,     ///< the last rank waits for no rank in the collective where it is awaited
    absent,     ///< the last never entered that collective
    passed,     ///< the last rank has done its part and continued
  };

  std::vector<int> ranks;                ///< each waits for the next,
  std::vector<RankRecord::Entry> calls;  ///< in this collective: the previous rank's, or an earlier one
  End end = End::nobody;
  bool late = false;  ///< passed, but only after the previous rank had waited in vain
};

/// From `rank`, which waits in `entry` and has had no progress for `idle_us`. `record_of` returns the record
/// of a rank, or null.
WaitChain follow_waits(int rank, const RankRecord::Entry& entry, std::int64_t idle_us,
                       const std::function<const RankRecord*(int)>& record_of);

}  // namespace athanor::dist
