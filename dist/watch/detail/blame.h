#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "dist/watch/flight_record.h"

// Who is to blame that a rank waits. One rank's answer, in the moment before it ends: it has its own record
// and what others are writing just now. What follows from all records, in peace, is `athanor flight`'s.

namespace athanor::dist {

struct Blame {
  /// "rank 2 did not do its part of ring all_reduce #688, bucket 4, for 10 s (rank 0 waits for rank 3 waits
  /// for rank 2)", or that this rank is in no collective, and since when.
  std::string text;
  /// A rank on the way there that has ended by an error of its own, which it says itself; -1: none.
  int ended = -1;
};

/// In a ring each waits for the one before it, and only one of them for the one that is missing. Follows
/// "waits for" through the records in `folder` (record_file()), which others write at about the same time:
/// each may come until `patience` after the call. Ends where WaitChain does, and names the collective in
/// which the last one is waited for. Where they wait for each other, a message is lost: named is one of the
/// two ends of the wait that has got least far, the one on another host, if any. Where `folder` is empty, it
/// is the rank that this one waits for.
Blame find_blame(const FlightRecord& mine, const std::filesystem::path& folder,
                 std::chrono::microseconds patience);

}  // namespace athanor::dist
