#include "examples/athanor_tool/flight_report.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include "dist/watch/flight_record.h"
#include "examples/athanor_tool/flight_findings.h"
#include "tensor/base/error.h"

namespace athanor::tool {
namespace {

using dist::RankRecord;
using Entry = RankRecord::Entry;

/// The rank of a record file, complete or not.
std::optional<int> rank_of(const std::filesystem::path& file) {
  constexpr std::string_view kBefore = "flight.", kUnfinished = dist::FlightRecord::kUnfinished;
  std::string name = file.filename().string();
  if (name.ends_with(kUnfinished)) name.resize(name.size() - kUnfinished.size());
  int rank = -1;
  if (name.starts_with(kBefore))
    std::from_chars(name.data() + kBefore.size(), name.data() + name.size(), rank);
  if (rank < 0 || rank >= RankRecord::kMaxRanks || name != dist::record_file({}, rank)) return {};
  return rank;
}

/// "ring all_reduce, bucket 4 (262144 f32, 1048576 bytes)"
std::string with_payload(const Entry& entry) {
  if (entry.count == 0) return name_of(entry);
  return fmt::format("{} ({} {}, {} bytes)", name_of(entry), entry.count, entry.dtype, entry.payload);
}

/// Highest number it has completed; -1: none.
std::int64_t finished(const RankRecord& record) {
  for (std::size_t i = record.entries.size(); i-- > 0;) {
    if (!record.entries[i].under_way()) return record.entries[i].seq;
  }
  return -1;
}

// A folder may contain records of an earlier run, perhaps with other ranks: the newest record identifies the
// last run. Clocks of different machines may differ by a minute.
void forget_earlier_runs(std::vector<RankRecord>& records) {
  constexpr std::int64_t kClocksUs = 60'000'000;
  const auto newest = std::max_element(records.begin(), records.end(),
                                       [](const auto& a, const auto& b) { return a.now_us < b.now_us; });
  if (newest == records.end() || newest->world_size == 0) return;
  const int world = newest->world_size;
  const std::int64_t began = newest->began_us;
  for (RankRecord& record : records) {
    if (!record.found || record.world_size == 0) continue;
    if (record.world_size == world && record.now_us + kClocksUs >= began) continue;
    record = RankRecord{.rank = record.rank, .damage = "belongs to an earlier run"};
  }
}

}  // namespace

FlightReport conclude(std::vector<RankRecord> records) {
  forget_earlier_runs(records);
  int world = 0;
  for (const RankRecord& record : records) world = std::max(world, record.world_size);
  if (world == 0) {
    for (const RankRecord& record : records) world = std::max(world, record.rank + 1);
  }
  FlightReport report;
  report.ranks.resize(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    report.ranks[static_cast<std::size_t>(rank)].rank = rank;
    report.ranks[static_cast<std::size_t>(rank)].damage = "is missing";
  }
  for (RankRecord& record : records) {
    if (record.rank < world) report.ranks[static_cast<std::size_t>(record.rank)] = std::move(record);
  }
  const std::vector<RankRecord>& ranks = report.ranks;
  report.last_common = std::numeric_limits<std::int64_t>::max();
  for (const RankRecord& record : ranks) {
    if (record.found) report.last_common = std::min(report.last_common, finished(record));
  }
  report.findings = find_culprits(ranks);
  return report;
}

FlightReport read_flight(const std::filesystem::path& folder) {
  std::set<int> there;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (const std::optional<int> rank = rank_of(entry.path())) there.insert(*rank);
  }
  std::vector<RankRecord> records;
  records.reserve(there.size());
  for (const int rank : there) records.push_back(dist::read_record(dist::record_file(folder, rank), rank));
  if (error) {
    athanor::detail::fail<IoError>("flight: {} must be a folder that can be read, but got: {}",
                                   folder.string(), error.message());
  }
  const bool any =
      std::any_of(records.begin(), records.end(), [](const auto& record) { return record.found; });
  if (!any) {
    athanor::detail::fail<IoError>(
        "flight: {} must hold flight records (flight.0.json, ...), but holds {} that can be read; a run that "
        "ends normally leaves none",
        folder.string(), records.empty() ? "none" : "no file");
  }
  return conclude(std::move(records));
}

std::string FlightReport::str() const {
  std::string out;
  const auto add = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    out += fmt::format(format, std::forward<Args>(args)...);
  };
  for (const std::string& finding : findings) add("{}\n", finding);
  const bool all_there =
      std::all_of(ranks.begin(), ranks.end(), [](const RankRecord& record) { return record.found; });
  if (last_common >= 0) {
    add("last collective that all ranks{} have finished: {}\n", all_there ? "" : " with a record",
        call_name(ranks, last_common));
  } else {
    add("no collective that all ranks have finished\n");
  }
  add("\n{:>4}  {:<16} {:<9} {:>8} {:>8}  {:>8} {:>11}  {:>9}  {}\n", "rank", "host", "ended by", "finished",
      "entered", "idle", "bytes", "waits for", "in");
  for (const RankRecord& record : ranks) {
    if (!record.found) {
      add("{:>4}  -\n", record.rank);
      continue;
    }
    const Entry* last = record.last();
    const bool inside = record.under_way();
    const auto seq = [](std::int64_t value) {
      return value < 0 ? std::string("-") : fmt::format("#{}", value);
    };
    add("{:>4}  {:<16} {:<9} {:>8} {:>8}  {:>8} {:>11}  {:>9}  {}\n", record.rank, record.host, record.reason,
        seq(finished(record)), seq(record.entered()),
        last && record.now_us ? seconds_of(record.now_us - (inside ? last->last_us : last->end_us)) : "-",
        inside ? fmt::format("{}", last->bytes) : "-",
        inside && last->waits_for >= 0 ? fmt::format("{}", last->waits_for) : "-",
        inside ? with_payload(*last) : "no collective");
  }
  for (const RankRecord& record : ranks) {
    if (!record.damage.empty()) add("{} {}\n", dist::record_file({}, record.rank).string(), record.damage);
  }
  return out;
}

}  // namespace athanor::tool
