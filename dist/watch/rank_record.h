#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::dist {

/// A rank's record (dist/watch/flight_record.h) as read from its file.
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
  bool found = false;       ///< false: there is no file, or no readable content
  std::string damage = {};  ///< what the file lacks; empty: complete
  int world_size = 0;       ///< 0: unknown
  std::string host = {};
  std::string reason = {};  ///< deadline, lost, stopped, error, or a signal's name
  std::string error = {};
  std::int64_t began_us = 0;        ///< start of recording
  std::int64_t now_us = 0;          ///< time of writing
  std::vector<Entry> entries = {};  ///< ascending

  static constexpr int kMaxRanks = 1 << 16;
  /// `damage` of a file without readable content.
  static constexpr char kUnreadable[] = "holds nothing that can be read";

  /// The collective of that number; null if missing.
  const Entry* at(std::int64_t seq) const;
  /// The newest, or the one before if neither is done (FlightRecord::oldest_open); null if there is none.
  const Entry* last() const {
    if (entries.empty()) return nullptr;
    const Entry* const newest = &entries.back();
    const bool both = entries.size() > 1 && newest->under_way() && newest[-1].under_way();
    return both ? newest - 1 : newest;
  }
  /// Whether the rank was in a collective at the time of writing.
  bool under_way() const { return last() && last()->under_way(); }
  /// The number of that one; -1: none.
  std::int64_t entered() const { return last() ? last()->seq : -1; }
};

/// The path of a rank's record: flight.<rank>.json in the run's folder.
std::filesystem::path record_file(const std::filesystem::path& folder, int rank);

/// Reads a record. A file may be missing, empty, truncated or overwritten with anything; `damage` reports it.
/// Lines with a number out of range are skipped; text is printable().
RankRecord read_record(const std::filesystem::path& file, int rank);

}  // namespace athanor::dist
