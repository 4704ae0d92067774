#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/watch/rank_record.h"

// The rules by which a FlightReport names the culprit, from the records of all ranks.

namespace athanor::tool {

/// FlightReport::findings for the records of the whole world, by rank; never empty.
std::vector<std::string> find_culprits(const std::vector<dist::RankRecord>& ranks);

/// "ring all_reduce, bucket 4"
std::string name_of(const dist::RankRecord::Entry& entry);
/// "#688 ring all_reduce, bucket 4", from any of the records.
std::string call_name(const std::vector<dist::RankRecord>& ranks, std::int64_t seq);
/// "3.3 s"
std::string seconds_of(std::int64_t us);

}  // namespace athanor::tool
