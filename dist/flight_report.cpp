#include "dist/flight_report.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "dist/detail/wait_chain.h"
#include "dist/flight_record.h"
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
constexpr char kUnreadable[] = "holds nothing that can be read";

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

// "rank 3", "ranks 0, 1, 3"
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}
std::string seconds(std::int64_t us) {
  return fmt::format("{:.1f} s", static_cast<double>(us) / 1e6);
}

// Those that cannot be mistaken for each other must be equal on all ranks.
std::string signature(const Entry& entry) {
  return entry.count > 0 ? fmt::format("{}, {} {}", entry.str(), entry.count, entry.dtype) : entry.str();
}

const Entry* anybodys(const std::vector<RankRecord>& ranks, std::int64_t seq) {
  for (const RankRecord& record : ranks) {
    if (const Entry* entry = record.at(seq)) return entry;
  }
  return nullptr;
}

std::string call(const std::vector<RankRecord>& ranks, std::int64_t seq) {
  const Entry* entry = anybodys(ranks, seq);
  return entry ? fmt::format("#{} {}", seq, entry->str()) : fmt::format("#{}", seq);
}

using Findings = std::vector<std::string>;

// An error of their own, a crash, or a stop: what it says counts more than what others suffer from it.
void find_own_ends(const std::vector<RankRecord>& ranks, Findings& findings) {
  std::vector<std::pair<std::string, std::vector<int>>> errors;
  for (const RankRecord& record : ranks) {
    if (record.reason == "error") {
      const auto same = std::find_if(errors.begin(), errors.end(),
                                     [&](const auto& error) { return error.first == record.error; });
      if (same != errors.end()) {
        same->second.push_back(record.rank);
      } else {
        errors.push_back({record.error, {record.rank}});
      }
    } else if (record.reason == "stopped") {
      findings.push_back(fmt::format("rank {}: {}", record.rank, record.error));
    } else if (record.reason.starts_with("SIG") && record.reason != "SIGTERM" && record.reason != "SIGINT") {
      findings.push_back(fmt::format("rank {} crashed ({})", record.rank, record.reason));
    }
  }
  for (const auto& [error, who] : errors) {
    findings.push_back(fmt::format("{} ended by an error of {} own: {}", named(who),
                                   who.size() == 1 ? "its" : "their", error));
  }
}

// What follows from whom ranks wait for.
struct Waiting {
  std::vector<WaitChain> chains;
  std::set<int> ranks;    // that wait for another one
  std::set<int> gone_on;  // that have come late, or done their part
};

Waiting follow_all(const std::vector<RankRecord>& ranks) {
  Waiting waiting;
  const auto record_of = [&](int rank) -> const RankRecord* {
    const bool known = rank < std::ssize(ranks) && ranks[static_cast<std::size_t>(rank)].found;
    return known ? &ranks[static_cast<std::size_t>(rank)] : nullptr;
  };
  for (const RankRecord& record : ranks) {
    if (record.entries.empty() || !record.entries.back().under_way()) continue;
    const Entry& last = record.entries.back();
    if (last.waits_for < 0 || last.waits_for >= std::ssize(ranks)) continue;
    WaitChain chain = follow_waits(record.rank, last, record.now_us - last.last_us, record_of);
    waiting.ranks.insert(record.rank);
    if (chain.end == WaitChain::End::passed) waiting.gone_on.insert(chain.ranks.back());
    waiting.chains.push_back(std::move(chain));
  }
  return waiting;
}

// Who waits for `rank` directly, at the end of a chain: by the collective's number.
std::map<std::int64_t, std::set<int>> who_waits_for(int rank, const Waiting& waiting) {
  std::map<std::int64_t, std::set<int>> who;
  for (const WaitChain& chain : waiting.chains) {
    if (chain.ranks.back() == rank) who[chain.calls.back().seq].insert(*std::prev(chain.ranks.end(), 2));
  }
  return who;
}

void find_missing(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  for (const RankRecord& record : ranks) {
    if (record.found) continue;
    std::string line =
        record.damage == kUnreadable
            ? fmt::format("rank {} left a record that cannot be read: it was killed as it wrote it",
                          record.rank)
            : fmt::format(
                  "rank {} left no record: it was killed, ended without a word, or its machine is gone",
                  record.rank);
    for (const auto& [seq, who] : who_waits_for(record.rank, waiting)) {
      line += fmt::format("; {} wait{} for it in {}", named({who.begin(), who.end()}),
                          who.size() == 1 ? "s" : "", call(ranks, seq));
    }
    findings.push_back(line);
  }
}

// Whoever is waited for where it has done its part: it was held up, or what it sent did not come.
void find_gone_on(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  for (const int rank : waiting.gone_on) {
    const bool late = std::any_of(waiting.chains.begin(), waiting.chains.end(), [&](const WaitChain& chain) {
      return chain.ranks.back() == rank && chain.late;
    });
    for (const auto& [seq, who] : who_waits_for(rank, waiting)) {
      const std::string others = named({who.begin(), who.end()});
      const char* s = who.size() == 1 ? "s" : "";
      findings.push_back(
          late ? fmt::format("rank {} was late: {} had waited for it in {}", rank, others, call(ranks, seq))
               : fmt::format("{} wait{} for rank {} in {}, which has done its part: what it sent is lost, or "
                             "{} held up",
                             others, s, rank, call(ranks, seq),
                             fmt::format("{} {}", others, who.size() == 1 ? "was" : "were")));
    }
  }
}

// The first number under which ranks did different things.
bool find_desync(const std::vector<RankRecord>& ranks, Findings& findings) {
  std::set<std::int64_t> numbers;
  for (const RankRecord& record : ranks) {
    for (const Entry& entry : record.entries) numbers.insert(entry.seq);
  }
  for (const std::int64_t seq : numbers) {
    std::map<std::string, std::vector<int>> calls;
    for (const RankRecord& record : ranks) {
      if (const Entry* entry = record.at(seq)) calls[signature(*entry)].push_back(record.rank);
    }
    if (calls.size() < 2) continue;
    // The few first: they are the ones that differ.
    std::vector<std::pair<std::string, std::vector<int>>> sides(calls.begin(), calls.end());
    std::stable_sort(sides.begin(), sides.end(),
                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<std::string> parts;
    for (const auto& [what, who] : sides)
      parts.push_back(fmt::format("{} entered #{} {}", named(who), seq, what));
    findings.push_back(fmt::format("ranks do not do the same: {}", fmt::join(parts, "; but ")));
    return true;
  }
  return false;
}

bool find_behind(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  std::int64_t front = -1;
  for (const RankRecord& record : ranks) {
    if (!waiting.gone_on.contains(record.rank)) front = std::max(front, record.entered());
  }
  std::map<std::int64_t, std::vector<int>> behind;  // by the first they lack
  for (const RankRecord& record : ranks) {
    if (record.found && record.entered() < front && !waiting.ranks.contains(record.rank))
      behind[record.entered() + 1].push_back(record.rank);
  }
  for (const auto& [seq, who] : behind) {
    std::string line = fmt::format("{} never entered {}", named(who), call(ranks, seq));
    const RankRecord& first = ranks[static_cast<std::size_t>(who[0])];
    if (who.size() == 1 && !first.entries.empty() && !first.entries.back().under_way())
      line += fmt::format("; its last was done {} before its record was written",
                          seconds(first.now_us - first.entries.back().end_us));
    findings.push_back(line);
  }
  return !behind.empty();
}

// Nobody is busy elsewhere. In the first collective in which some wait, one came late, or has done less of
// it.
void find_stuck(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  std::vector<const RankRecord*> stuck;
  for (const RankRecord& record : ranks) {
    if (!record.entries.empty() && record.entries.back().under_way()) stuck.push_back(&record);
  }
  if (stuck.empty()) return;
  std::int64_t seq = stuck[0]->entered();
  for (const RankRecord* record : stuck) seq = std::min(seq, record->entered());
  std::erase_if(stuck, [&](const RankRecord* record) { return record->entered() > seq; });
  std::vector<const RankRecord*> here;
  for (const RankRecord& record : ranks) {
    if (record.at(seq)) here.push_back(&record);
  }
  const auto started = [&](const RankRecord* record) { return record->at(seq)->start_us; };
  std::sort(here.begin(), here.end(), [&](auto* a, auto* b) { return started(a) < started(b); });
  constexpr std::int64_t kLate = 1'000'000;
  if (here.size() > 1 && started(here.back()) - started(here[here.size() - 2]) > kLate) {
    findings.push_back(fmt::format("rank {} came to {} {} after the others", here.back()->rank,
                                   call(ranks, seq), seconds(started(here.back()) - started(here[0]))));
    return;
  }
  const auto in_it = std::find_if(waiting.chains.begin(), waiting.chains.end(), [&](const WaitChain& one) {
    return one.ranks[0] == stuck[0]->rank && one.calls[0].seq == seq;
  });
  if (in_it == waiting.chains.end()) return;
  const WaitChain& chain = *in_it;
  if (chain.end == WaitChain::End::circle) {
    const RankRecord* least = *std::min_element(stuck.begin(), stuck.end(), [](auto* a, auto* b) {
      const Entry &x = a->entries.back(), &y = b->entries.back();
      return std::tie(x.bytes, x.last_us) < std::tie(y.bytes, y.last_us);
    });
    findings.push_back(fmt::format(
        "in {} ranks wait for each other ({}); rank {} has got least far, with {} bytes", call(ranks, seq),
        fmt::join(chain.ranks, " -> "), least->rank, least->entries.back().bytes));
  } else if (chain.end == WaitChain::End::nobody) {
    findings.push_back(fmt::format("rank {} did not do its part of {} ({})", chain.ranks.back(),
                                   call(ranks, seq), fmt::join(chain.ranks, " -> ")));
  }
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
  const Waiting waiting = follow_all(ranks);
  find_own_ends(ranks, report.findings);
  find_missing(ranks, waiting, report.findings);
  if (!find_desync(ranks, report.findings)) {
    find_gone_on(ranks, waiting, report.findings);
    if (!find_behind(ranks, waiting, report.findings) && report.findings.empty())
      find_stuck(ranks, waiting, report.findings);
  }
  if (report.findings.empty())
    report.findings.push_back("no rank is behind: all have finished what they entered");
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
        call(ranks, last_common));
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
        last && record.now_us ? seconds(record.now_us - (inside ? last->last_us : last->end_us)) : "-",
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
