#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/watch/flight_report.h"

// The rules by which a FlightReport names who is to blame, from the records of all ranks.

namespace athanor::dist {

/// RankRecord::damage of a file that is there, and of no use.
inline constexpr char kUnreadable[] = "holds nothing that can be read";

/// FlightReport::findings for the records of the whole world, by rank; never empty.
std::vector<std::string> find_who_is_to_blame(const std::vector<RankRecord>& ranks);

/// "#688 ring all_reduce, bucket 4", as any of the records has it.
std::string call_name(const std::vector<RankRecord>& ranks, std::int64_t seq);
/// "3.3 s"
std::string seconds_of(std::int64_t us);

}  // namespace athanor::dist
