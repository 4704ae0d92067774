#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dist/watch/rank_record.h"

namespace athanor::dist {

/// Where "waits for" leads: from a rank that waits, over those that wait themselves, to the one to blame. Who
/// is still in an earlier collective has not come to the later one because of whom it waits for in the
/// earlier.
struct WaitChain {
  enum class End {
    circle,     ///< the last is there twice: they wait for each other
    no_record,  ///< the last has none that can be read
    nobody,     ///< the last waits for nobody, in the collective in which it is waited for
    absent,     ///< the last never entered that collective
    passed,     ///< the last has done its part of it, and gone on
  };

  std::vector<int> ranks;                ///< each waits for the next,
  std::vector<RankRecord::Entry> calls;  ///< in this collective: the same one, or an earlier one than before
  End end = End::nobody;
  bool late = false;  ///< passed: but only when the one before it had waited in vain
};

/// From `rank`, which waits in `entry` and has not heard anything for `idle_us`. `record_of` gives the record
/// of a rank, null where there is none.
WaitChain follow_waits(int rank, const RankRecord::Entry& entry, std::int64_t idle_us,
                       const std::function<const RankRecord*(int)>& record_of);

}  // namespace athanor::dist
