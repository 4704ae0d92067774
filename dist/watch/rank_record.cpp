#include "dist/watch/rank_record.h"

#include <algorithm>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "dist/watch/flight_record.h"
#include "tensor/base/printable.h"
#include "tensor/io/regular_file.h"

namespace athanor::dist {
namespace {

using Json = nlohmann::json;
using Entry = RankRecord::Entry;

/// Bound on times, bytes and numbers, so that sums of a few cannot overflow.
constexpr std::int64_t kMax = std::int64_t{1} << 60;

/// Parses the numbers and texts of a line, and notes whether all were present and in range.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  std::int64_t number(const char* name, std::int64_t least = 0, std::int64_t most = kMax) {
    const auto at = line_.find(name);
    const bool is_number = at != line_.end() && at->is_number_integer();
    const bool too_large = is_number && at->is_number_unsigned() && at->get<std::uint64_t>() > kMax;
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

bool take_head(const Json& line, RankRecord& record) {
  if (record.found) return false;  // a header exists already
  Fields fields(line);
  RankRecord head{.rank = record.rank, .found = true};
  head.world_size = static_cast<int>(fields.number("world_size", 1, RankRecord::kMaxRanks));
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
  // Without a header line, waits_for may be any rank.
  const std::int64_t ranks = record.world_size > 0 ? record.world_size : RankRecord::kMaxRanks;
  entry.waits_for = static_cast<int>(fields.number("waits_for", -1, ranks - 1));
  if (!fields.good()) return false;
  record.found = true;
  record.entries.push_back(std::move(entry));
  return true;
}

/// The first 4 MiB, more than a record has; empty if the file is missing.
std::optional<std::string> beginning_of(const std::filesystem::path& path) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  const RegularFile file(path);
  if (file.descriptor() < 0) return {};
  const std::size_t bytes = file.problem().empty() ? static_cast<std::size_t>(file.bytes()) : 0;
  std::string text(std::min(kMost, bytes), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

RankRecord parse_record(std::string_view text, int rank) {
  RankRecord record;
  record.rank = rank;
  std::int64_t promised = -1, broken = 0;
  while (!text.empty()) {
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
  if (!record.found) {
    record.damage = RankRecord::kUnreadable;
  } else if (record.world_size == 0) {
    record.damage = "does not name its rank";
  } else if (promised != std::ssize(record.entries)) {
    record.damage = fmt::format("was truncated: {} entries can be read", record.entries.size());
  } else if (broken > 0) {
    record.damage = fmt::format("has {} lines that are not entries", broken);
  }
  return record;
}

}  // namespace

const Entry* RankRecord::at(std::int64_t seq) const {
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), seq,
                       [](const Entry& entry, std::int64_t wanted) { return entry.seq < wanted; });
  return at != entries.end() && at->seq == seq ? &*at : nullptr;
}

std::filesystem::path record_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("flight.{}.json", rank);
}

RankRecord read_record(const std::filesystem::path& path, int rank) {
  std::optional<std::string> text = beginning_of(path);
  if (!text) text = beginning_of(path.string() + FlightRecord::kUnfinished);
  if (text) return parse_record(*text, rank);
  return {.rank = rank, .damage = "is missing"};
}

}  // namespace athanor::dist
