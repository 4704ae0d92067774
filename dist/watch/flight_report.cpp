#include "dist/watch/flight_report.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "dist/watch/detail/flight_findings.h"
#include "dist/watch/flight_record.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

using Json = nlohmann::json;
using Entry = RankRecord::Entry;

std::int64_t number(const Json& line, const char* name, std::int64_t otherwise = 0) {
  const auto at = line.find(name);
  return at != line.end() && at->is_number_integer() ? at->get<std::int64_t>() : otherwise;
}
std::string text(const Json& line, const char* name) {
  const auto at = line.find(name);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}

constexpr std::string_view kNameBefore = "flight.", kNameAfter = ".json";  // and the rank between
constexpr std::string_view kUnfinished = FlightRecord::kUnfinished;

std::optional<int> rank_of(const std::filesystem::path& file) {
  std::string name = file.filename().string();
  if (name.ends_with(kUnfinished)) name.resize(name.size() - kUnfinished.size());
  if (!name.starts_with(kNameBefore) || !name.ends_with(kNameAfter) ||
      name.size() <= kNameBefore.size() + kNameAfter.size())
    return {};
  int rank = -1;
  const char* const end = name.data() + name.size() - kNameAfter.size();
  const auto [stop, error] = std::from_chars(name.data() + kNameBefore.size(), end, rank);
  if (error != std::errc() || stop != end || rank < 0 || rank >= 1 << 20) return {};
  return rank;
}

Entry entry_of(const Json& line) {
  Entry entry;
  entry.seq = number(line, "seq", -1);
  const std::string algorithm = text(line, "algorithm");
  entry.name = algorithm.empty() ? text(line, "op") : algorithm + " " + text(line, "op");
  entry.dtype = text(line, "dtype");
  entry.count = number(line, "count");
  entry.payload = number(line, "payload");
  entry.bucket = number(line, "bucket", -1);
  entry.start_us = number(line, "start_us");
  entry.last_us = number(line, "last_us");
  entry.end_us = number(line, "end_us");
  entry.bytes = number(line, "bytes");
  entry.waits_for = number(line, "waits_for", -1);
  return entry;
}

}  // namespace

std::string Entry::str() const {
  return bucket >= 0 ? fmt::format("{}, bucket {}", name, bucket) : name;
}

std::string Entry::with_payload() const {
  return count > 0 ? fmt::format("{} ({} {}, {} bytes)", str(), count, dtype, payload) : str();
}

const Entry* RankRecord::at(std::int64_t seq) const {
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), seq,
                       [](const Entry& entry, std::int64_t wanted) { return entry.seq < wanted; });
  return at != entries.end() && at->seq == seq ? &*at : nullptr;
}

std::int64_t RankRecord::finished() const {
  for (std::size_t i = entries.size(); i-- > 0;) {
    if (!entries[i].under_way()) return entries[i].seq;
  }
  return -1;
}

std::filesystem::path record_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("{}{}{}", kNameBefore, rank, kNameAfter);
}

RankRecord read_record(const std::filesystem::path& path, int rank) {
  RankRecord record;
  record.rank = rank;
  std::ifstream file(path, std::ios::binary);
  if (!file) file.open(path.string().append(kUnfinished), std::ios::binary);
  if (!file) {
    record.damage = "is missing";
    return record;
  }
  std::int64_t promised = -1, broken = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.contains("flight")) {
      record.found = true;
      record.world_size = static_cast<int>(std::clamp<std::int64_t>(number(json, "world_size"), 0, 1 << 20));
      record.host = text(json, "host");
      record.reason = text(json, "reason");
      record.error = text(json, "error");
      record.began_us = number(json, "began_us");
      record.now_us = number(json, "now_us");
    } else if (number(json, "seq", -1) >= 0) {
      record.found = true;
      record.entries.push_back(entry_of(json));
    } else if (json.contains("entries")) {
      promised = number(json, "entries");
    } else {
      ++broken;
    }
  }
  std::stable_sort(record.entries.begin(), record.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.seq < b.seq; });
  const auto same = [](const Entry& a, const Entry& b) { return a.seq == b.seq; };
  record.entries.erase(std::unique(record.entries.begin(), record.entries.end(), same), record.entries.end());
  if (!record.found) {
    record.damage = kUnreadable;
  } else if (record.world_size == 0) {
    record.damage = "does not say whose it is";
  } else if (promised != std::ssize(record.entries)) {
    record.damage = fmt::format("was cut: {} entries can be read", record.entries.size());
  } else if (broken > 0) {
    record.damage = fmt::format("has {} lines that are no entries", broken);
  }
  return record;
}

// A folder may hold what an earlier run has left, perhaps with other ranks: the newest record says which run
// is the last. Clocks of different machines may differ by a minute.
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
    record = RankRecord{.rank = record.rank, .damage = "is of an earlier run"};
  }
}

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
    if (record.found) report.last_common = std::min(report.last_common, record.finished());
  }
  report.findings = find_who_is_to_blame(ranks);
  return report;
}

FlightReport read_flight(const std::filesystem::path& folder) {
  std::set<int> there;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (const std::optional<int> rank = rank_of(entry.path())) there.insert(*rank);
  }
  std::vector<RankRecord> records;
  for (const int rank : there) records.push_back(read_record(record_file(folder, rank), rank));
  if (error) {
    detail::fail<IoError>("flight: {} must be a folder that can be read, but got: {}", folder.string(),
                          error.message());
  }
  const bool any =
      std::any_of(records.begin(), records.end(), [](const auto& record) { return record.found; });
  if (!any) {
    detail::fail<IoError>(
        "flight: {} must hold records of ranks (flight.0.json, ...), but holds {} that can be read; a run "
        "that "
        "ends well leaves none",
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
    add("the last that all{} have finished: {}\n", all_there ? "" : " with a record",
        call_name(ranks, last_common));
  } else {
    add("there is none that all have finished\n");
  }
  add("\n{:>4}  {:<16} {:<9} {:>8} {:>8}  {:>8} {:>11}  {:>9}  {}\n", "rank", "host", "ended by", "finished",
      "entered", "idle", "bytes", "waits for", "in");
  for (const RankRecord& record : ranks) {
    if (!record.found) {
      add("{:>4}  -\n", record.rank);
      continue;
    }
    const Entry* last = record.entries.empty() ? nullptr : &record.entries.back();
    const bool inside = last && last->under_way();
    const auto seq = [](std::int64_t value) {
      return value < 0 ? std::string("-") : fmt::format("#{}", value);
    };
    add("{:>4}  {:<16} {:<9} {:>8} {:>8}  {:>8} {:>11}  {:>9}  {}\n", record.rank, record.host, record.reason,
        seq(record.finished()), seq(record.entered()),
        last && record.now_us ? seconds_of(record.now_us - (inside ? last->last_us : last->end_us)) : "-",
        inside ? fmt::format("{}", last->bytes) : "-",
        inside && last->waits_for >= 0 ? fmt::format("{}", last->waits_for) : "-",
        inside ? last->with_payload() : "no collective");
  }
  for (const RankRecord& record : ranks) {
    if (!record.damage.empty()) add("{} {}\n", record_file({}, record.rank).string(), record.damage);
  }
  return out;
}

}  // namespace athanor::dist
