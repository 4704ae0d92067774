#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/watch/rank_record.h"

namespace athanor::tool {

/// The records of a job, and the conclusions from all of them.
struct FlightReport {
  std::vector<dist::RankRecord> ranks;  ///< all of the world, by rank
  /// The last collective completed by all ranks with a record; -1: none.
  std::int64_t last_common = -1;
  /// The culprits, one line each, the strongest evidence first: "rank 3 never entered #688 ring all_reduce,
  /// bucket 4".
  std::vector<std::string> findings;

  /// The findings, the last common collective, a table with a line per rank, and the damaged files.
  std::string str() const;
};

/// Reads flight.<rank>.json of all ranks. Throws IoError if the folder has none.
FlightReport read_flight(const std::filesystem::path& folder);

/// The same for given records.
FlightReport conclude(std::vector<dist::RankRecord> records);

}  // namespace athanor::tool
