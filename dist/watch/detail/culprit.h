#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "dist/watch/flight_record.h"

// Finds the culprit when a rank waits: one rank's answer just before it ends, from its own record and what
// others are writing at that moment. `athanor flight` later analyses all records.

namespace athanor::dist {

struct Culprit {
  /// "rank 2 did not do its part of ring all_reduce #688, bucket 4, for 10 s (rank 0 waits for rank 3 waits
  /// for rank 2)", or that this rank is in no collective, and since when.
  std::string text;
  /// A rank in the chain that ended by its own error, which it reports itself; -1: none.
  int ended = -1;
};

/// In a ring each rank waits for the previous one, but only one of them for the missing rank. Follows "waits
/// for" through the records in `folder` (record_file()), which other ranks write at about the same time:
/// waits up to `patience` for each. Ends where WaitChain ends, and names the collective in which the last
/// rank is awaited. If ranks wait for each other, a message is lost: names one of the two ends of the wait
/// with the least progress, preferably the one on another host. With an empty `folder`, blames the rank that
/// this one waits for.
Culprit find_culprit(const FlightRecord& mine, const std::filesystem::path& folder,
                     std::chrono::microseconds patience);

}  // namespace athanor::dist
