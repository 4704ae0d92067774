#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::dist {

/// A rank's record (dist/watch/flight_record.h) as its file has it.
struct RankRecord {
  struct Entry {
    std::int64_t seq = -1;
    std::string name;   ///< "ring all_reduce"
    std::string dtype;  ///< "f32"
    std::int64_t count = 0, bucket = -1;
    std::int64_t payload = 0;  ///< bytes of its buffer
    std::int64_t start_us = 0, last_us = 0, end_us = 0, bytes = 0;
    int waits_for = -1;  ///< less than world_size

    bool under_way() const { return end_us == 0; }
    /// "ring all_reduce, bucket 4"
    std::string str() const;
    /// "ring all_reduce, bucket 4 (262144 f32, 1048576 bytes)"
    std::string with_payload() const;
  };

  int rank = -1;
  bool found = false;       ///< false: there is no file, or nothing in it can be read
  std::string damage = {};  ///< what the file lacks; empty: it is whole
  int world_size = 0;       ///< 0: not known
  std::string host = {};
  std::string reason = {};  ///< deadline, lost, error, or a signal's name
  std::string error = {};
  std::int64_t began_us = 0;        ///< when its rank began to record
  std::int64_t now_us = 0;          ///< when it was written
  std::vector<Entry> entries = {};  ///< ascending

  /// The collective of that number; null where it is not there.
  const Entry* at(std::int64_t seq) const;
  /// Highest number it has entered, or finished; -1: none.
  std::int64_t entered() const { return entries.empty() ? -1 : entries.back().seq; }
  std::int64_t finished() const;
};

/// The records of a job, and what follows from all of them together.
struct FlightReport {
  std::vector<RankRecord> ranks;  ///< all of the world, by rank
  /// The last collective that all ranks with a record have finished; -1: none.
  std::int64_t last_common = -1;
  /// Who is to blame, one line each, the most telling first: "rank 3 never entered #688 ring all_reduce,
  /// bucket 4".
  std::vector<std::string> findings;

  /// The findings, the last common collective, a table with a line per rank, and which files are damaged.
  std::string str() const;
};

/// Where the record of `rank` lies: flight.<rank>.json in the run's folder.
std::filesystem::path record_file(const std::filesystem::path& folder, int rank);

/// One line per rank is all that is sure to be there: a file may be missing, empty, cut or overwritten with
/// anything, and says so in `damage`. A line with a number out of range is none; text is printable().
RankRecord read_record(const std::filesystem::path& file, int rank);
/// The same from the first three lines, 16 KiB at most: of the entries, the two newest.
RankRecord read_newest(const std::filesystem::path& file, int rank);

/// Reads flight.<rank>.json of all ranks. Throws IoError where the folder holds none.
FlightReport read_flight(const std::filesystem::path& folder);

/// The same for records that were read.
FlightReport conclude(std::vector<RankRecord> records);

}  // namespace athanor::dist
