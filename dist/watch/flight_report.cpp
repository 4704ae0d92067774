#include "dist/watch/flight_report.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "dist/watch/detail/flight_findings.h"
#include "dist/watch/flight_record.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor::dist {
namespace {

using Json = nlohmann::json;
using Entry = RankRecord::Entry;

constexpr std::int64_t kMostRanks = 1 << 16;
constexpr std::int64_t kMost = std::int64_t{1}
                               << 60;  // of times, bytes and numbers: sums of some do not overflow

/// The numbers and texts of one line, and whether all of them were there and in range.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  std::int64_t number(const char* name, std::int64_t least = 0, std::int64_t most = kMost) {
    const auto at = line_.find(name);
    const bool is_number = at != line_.end() && at->is_number_integer();
    const bool too_large = is_number && at->is_number_unsigned() && at->get<std::uint64_t>() > kMost;
    const std::int64_t value = is_number && !too_large ? at->get<std::int64_t>() : least - 1;
    good_ = good_ && value >= least && value <= most;
    return value;
  }
  std::string text(const char* name) {
    const auto at = line_.find(name);
    const bool is_text = at != line_.end() && at->is_string();
    good_ = good_ && is_text;
    return is_text ? printable(at->get_ref<const std::string&>()) : "";
  }
  bool good() const { return good_; }

 private:
  const Json& line_;
  bool good_ = true;
};

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
  if (error != std::errc() || stop != end || rank < 0 || rank >= kMostRanks) return {};
  return rank;
}

bool take_head(const Json& line, RankRecord& record) {
  if (record.found) return false;  // there is one, and it comes first
  Fields fields(line);
  RankRecord head{.rank = record.rank, .found = true};
  head.world_size = static_cast<int>(fields.number("world_size", 1, kMostRanks));
  head.host = fields.text("host");
  head.reason = fields.text("reason");
  head.error = fields.text("error");
  head.began_us = fields.number("began_us");
  head.now_us = fields.number("now_us");
  head.entries = std::move(record.entries);
  if (fields.good()) record = std::move(head);
  return fields.good();
}

bool take_entry(const Json& line, RankRecord& record) {
  Fields fields(line);
  Entry entry;
  entry.seq = fields.number("seq");
  const std::string algorithm = fields.text("algorithm"), op = fields.text("op");
  entry.name = algorithm.empty() ? op : algorithm + " " + op;
  entry.dtype = fields.text("dtype");
  entry.count = fields.number("count");
  entry.payload = fields.number("payload");
  entry.bucket = fields.number("bucket", -1);
  entry.start_us = fields.number("start_us");
  entry.last_us = fields.number("last_us");
  entry.end_us = fields.number("end_us");
  entry.bytes = fields.number("bytes");
  // Whose line has no rank at its head may wait for anybody.
  const std::int64_t ranks = record.world_size > 0 ? record.world_size : kMostRanks;
  entry.waits_for = static_cast<int>(fields.number("waits_for", -1, ranks - 1));
  if (!fields.good()) return false;
  record.found = true;
  record.entries.push_back(std::move(entry));
  return true;
}

/// The first `most` bytes; none of what is no file, such as a FIFO, which would have this wait.
std::optional<std::string> beginning_of(const std::filesystem::path& path, std::size_t most) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return {};
  struct stat about {};
  std::string text;
  if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode))
    text.resize(std::min(most, static_cast<std::size_t>(about.st_size)));
  std::size_t done = 0;
  for (ssize_t got = 1; got > 0 && done < text.size(); done += static_cast<std::size_t>(got))
    got = std::max<ssize_t>(::read(file, text.data() + done, text.size() - done), 0);
  ::close(file);
  text.resize(done);
  return text;
}

RankRecord parse_record(std::string_view text, int rank, std::size_t most_entries) {
  RankRecord record;
  record.rank = rank;
  std::int64_t promised = -1, broken = 0;
  while (!text.empty() && record.entries.size() < most_entries) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const Json json = Json::parse(line, nullptr, false);
    const bool taken = json.contains("flight") ? take_head(json, record) : take_entry(json, record);
    if (taken) continue;
    if (json.contains("entries")) {
      promised = Fields(json).number("entries");
    } else {
      ++broken;
    }
  }
  std::stable_sort(record.entries.begin(), record.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.seq < b.seq; });
  const auto same = [](const Entry& a, const Entry& b) { return a.seq == b.seq; };
  record.entries.erase(std::unique(record.entries.begin(), record.entries.end(), same), record.entries.end());
  const bool enough = record.entries.size() == most_entries;
  if (!record.found) {
    record.damage = kUnreadable;
  } else if (record.world_size == 0) {
    record.damage = "does not say whose it is";
  } else if (!enough && promised != std::ssize(record.entries)) {
    record.damage = fmt::format("was cut: {} entries can be read", record.entries.size());
  } else if (broken > 0) {
    record.damage = fmt::format("has {} lines that are no entries", broken);
  }
  return record;
}

RankRecord read_beginning(const std::filesystem::path& path, int rank, std::size_t bytes,
                          std::size_t entries) {
  std::optional<std::string> text = beginning_of(path, bytes);
  if (!text) text = beginning_of(path.string().append(kUnfinished), bytes);
  if (text) return parse_record(*text, rank, entries);
  return {.rank = rank, .damage = "is missing"};
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
  return read_beginning(path, rank, std::size_t{4} << 20, std::string::npos);
}

RankRecord read_newest(const std::filesystem::path& path, int rank) {
  return read_beginning(path, rank, std::size_t{16} << 10, 2);
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
