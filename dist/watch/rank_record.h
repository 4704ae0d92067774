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

  static constexpr int kMostRanks = 1 << 16;
  /// `damage` of a file that is there, and of no use.
  static constexpr char kUnreadable[] = "holds nothing that can be read";

  /// The collective of that number; null where it is not there.
  const Entry* at(std::int64_t seq) const;
  /// The newest; null where there is none.
  const Entry* last() const { return entries.empty() ? nullptr : &entries.back(); }
  /// Whether it was in a collective when it was written.
  bool under_way() const { return last() && last()->under_way(); }
  /// Highest number it has entered; -1: none.
  std::int64_t entered() const { return last() ? last()->seq : -1; }
};

/// Where the record of `rank` lies: flight.<rank>.json in the run's folder.
std::filesystem::path record_file(const std::filesystem::path& folder, int rank);

/// One line per rank is all that is sure to be there: a file may be missing, empty, cut or overwritten with
/// anything, and says so in `damage`. A line with a number out of range is none; text is printable().
RankRecord read_record(const std::filesystem::path& file, int rank);
/// The same from the first three lines, 16 KiB at most: of the entries, the two newest.
RankRecord read_newest(const std::filesystem::path& file, int rank);

}  // namespace athanor::dist
