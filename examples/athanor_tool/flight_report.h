#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/watch/rank_record.h"

namespace athanor::tool {

/// The records of a job, and what follows from all of them together.
struct FlightReport {
  std::vector<dist::RankRecord> ranks;  ///< all of the world, by rank
  /// The last collective that all ranks with a record have finished; -1: none.
  std::int64_t last_common = -1;
  /// Who is to blame, one line each, the most telling first: "rank 3 never entered #688 ring all_reduce,
  /// bucket 4".
  std::vector<std::string> findings;

  /// The findings, the last common collective, a table with a line per rank, and which files are damaged.
  std::string str() const;
};

/// Reads flight.<rank>.json of all ranks. Throws IoError where the folder holds none.
FlightReport read_flight(const std::filesystem::path& folder);

/// The same for records that were read.
FlightReport conclude(std::vector<dist::RankRecord> records);

}  // namespace athanor::tool
