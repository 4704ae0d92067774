// Explained in docs/when_a_rank_dies.md.
#include "examples/athanor_tool/flight_findings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

namespace athanor::tool {
namespace {

using dist::RankRecord;
using Entry = RankRecord::Entry;
using Findings = std::vector<std::string>;

/// The chain of "waits for" from a waiting rank, through ranks that wait themselves, to the culprit. A rank
/// still in an earlier collective has not reached the later one because of the rank it waits for in the
/// earlier one.
struct WaitChain {
  enum class End {
    circle,     ///< the last rank occurs twice: they wait for each other
    no_record,  ///< the last rank has no readable record
    no_rank,    ///< the last rank waits for no rank in the collective where it is awaited
    absent,     ///< the last never entered that collective
    passed,     ///< the last rank has done its part and continued
  };

  std::vector<int> ranks;    ///< each waits for the next,
  std::vector<Entry> calls;  ///< in this collective: the previous rank's, or an earlier one
  End end = End::no_rank;
  bool late = false;  ///< passed, but only after the previous rank had waited in vain
};

// Ranks give up, and write their records, within about this time of each other.
constexpr std::int64_t kTogetherUs = 500'000;

/// From `rank`, which waits in `entry` and has had no progress for `idle_us`. `record_of` returns the record
/// of a rank, or null.
WaitChain follow_waits(int rank, const Entry& entry, std::int64_t idle_us,
                       const std::function<const RankRecord*(int)>& record_of) {
  using End = WaitChain::End;
  WaitChain chain;
  chain.ranks.push_back(rank);
  for (Entry call = entry; call.waits_for >= 0;) {
    const int next = call.waits_for;
    const auto seen = std::find(chain.ranks.begin(), chain.ranks.end(), next) - chain.ranks.begin();
    const bool circle =
        seen < std::ssize(chain.calls) && chain.calls[static_cast<std::size_t>(seen)].seq == call.seq;
    chain.ranks.push_back(next);
    chain.calls.push_back(call);
    const auto ends = [&](End end) {
      chain.end = end;
      return chain;
    };
    if (circle) return ends(End::circle);
    const RankRecord* record = record_of(next);
    if (!record) return ends(End::no_record);
    const bool waits = record->under_way();
    if (record->entered() > call.seq || (record->entered() == call.seq && !waits)) {
      const Entry* done = record->at(call.seq);
      chain.late = done && record->now_us - done->end_us + kTogetherUs < idle_us;
      return ends(End::passed);
    }
    if (!waits) return ends(End::absent);
    call = *record->last();
    idle_us = record->now_us - call.last_us;
  }
  return chain;
}

// "rank 3", "ranks 0, 1, 3"
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// The properties of a call that must be equal on all ranks.
std::string signature(const Entry& entry) {
  return entry.count > 0 ? fmt::format("{}, {} {}", name_of(entry), entry.count, entry.dtype)
                         : name_of(entry);
}

const Entry* anybodys(const std::vector<RankRecord>& ranks, std::int64_t seq) {
  for (const RankRecord& record : ranks) {
    if (const Entry* entry = record.at(seq)) return entry;
  }
  return nullptr;
}

// Own errors, crashes and stops: these are causes, unlike the errors that follow on other ranks.
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

// Conclusions from the ranks that others wait for.
struct Waiting {
  std::vector<WaitChain> chains;
  std::set<int> ranks;         // that wait for another rank
  std::set<int> passed_ranks;  // that were late, or have done their part
};

Waiting follow_all(const std::vector<RankRecord>& ranks) {
  Waiting waiting;
  const auto record_of = [&](int rank) -> const RankRecord* {
    const bool known = rank >= 0 && rank < std::ssize(ranks) && ranks[static_cast<std::size_t>(rank)].found;
    return known ? &ranks[static_cast<std::size_t>(rank)] : nullptr;
  };
  for (const RankRecord& record : ranks) {
    if (!record.under_way()) continue;
    const Entry& last = *record.last();
    if (last.waits_for < 0 || last.waits_for >= std::ssize(ranks)) continue;
    WaitChain chain = follow_waits(record.rank, last, record.now_us - last.last_us, record_of);
    waiting.ranks.insert(record.rank);
    // One that was told of a loss ended before the message could come.
    if (chain.end == WaitChain::End::passed && record.reason != "lost")
      waiting.passed_ranks.insert(chain.ranks.back());
    waiting.chains.push_back(std::move(chain));
  }
  return waiting;
}

// The ranks that wait for `rank` directly, at the end of a chain, by the collective's number.
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
        record.damage == RankRecord::kUnreadable
            ? fmt::format("rank {} left a record that cannot be read: it was killed while writing it",
                          record.rank)
            : fmt::format(
                  "rank {} left no record: it was killed, ended without a report, or its machine is down",
                  record.rank);
    for (const auto& [seq, who] : who_waits_for(record.rank, waiting)) {
      line += fmt::format("; {} wait{} for it in {}", named({who.begin(), who.end()}),
                          who.size() == 1 ? "s" : "", call_name(ranks, seq));
    }
    findings.push_back(line);
  }
}

// Ranks that are awaited although they have done their part: they were delayed, or their messages were lost.
void find_gone_on(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  for (const int rank : waiting.passed_ranks) {
    const bool late = std::any_of(waiting.chains.begin(), waiting.chains.end(), [&](const WaitChain& chain) {
      return chain.ranks.back() == rank && chain.late;
    });
    for (const auto& [seq, who] : who_waits_for(rank, waiting)) {
      const std::string others = named({who.begin(), who.end()});
      const char* s = who.size() == 1 ? "s" : "";
      findings.push_back(late ? fmt::format("rank {} was late: {} had waited for it in {}", rank, others,
                                            call_name(ranks, seq))
                              : fmt::format("{} wait{} for rank {} in {}, which has done its part: its "
                                            "message was lost, or {} delayed",
                                            others, s, rank, call_name(ranks, seq),
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
    // Smallest groups first: they are the deviating ones.
    std::vector<std::pair<std::string, std::vector<int>>> sides(calls.begin(), calls.end());
    std::stable_sort(sides.begin(), sides.end(),
                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<std::string> parts;
    parts.reserve(sides.size());
    for (const auto& [what, who] : sides)
      parts.push_back(fmt::format("{} entered #{} {}", named(who), seq, what));
    findings.push_back(fmt::format("ranks are out of sync: {}", fmt::join(parts, "; but ")));
    return true;
  }
  return false;
}

bool find_behind(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  std::int64_t front = -1;
  for (const RankRecord& record : ranks) {
    if (!waiting.passed_ranks.contains(record.rank)) front = std::max(front, record.entered());
  }
  std::map<std::int64_t, std::vector<int>> behind;  // by the first collective they lack
  for (const RankRecord& record : ranks) {
    // One that was told of a loss ended before it could get there.
    const bool had_to_end = record.reason == "lost";
    if (record.found && !had_to_end && record.entered() < front && !waiting.ranks.contains(record.rank))
      behind[record.entered() + 1].push_back(record.rank);
  }
  for (const auto& [seq, who] : behind) {
    std::string line = fmt::format("{} never entered {}", named(who), call_name(ranks, seq));
    const RankRecord& first = ranks[static_cast<std::size_t>(who[0])];
    if (who.size() == 1 && first.last() && !first.under_way())
      line += fmt::format("; its last collective ended {} before its record was written",
                          seconds_of(first.now_us - first.last()->end_us));
    findings.push_back(line);
  }
  return !behind.empty();
}

// No rank is busy elsewhere. In the first collective in which some wait, a rank was late, or has done less of
// it.
void find_stuck(const std::vector<RankRecord>& ranks, const Waiting& waiting, Findings& findings) {
  std::vector<const RankRecord*> stuck;
  for (const RankRecord& record : ranks) {
    if (record.under_way()) stuck.push_back(&record);
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
    findings.push_back(fmt::format("rank {} entered {} {} after the others", here.back()->rank,
                                   call_name(ranks, seq),
                                   seconds_of(started(here.back()) - started(here[0]))));
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
        "in {} ranks wait for each other ({}); rank {} has made the least progress, {} bytes",
        call_name(ranks, seq), fmt::join(chain.ranks, " -> "), least->rank, least->entries.back().bytes));
  } else if (chain.end == WaitChain::End::no_rank) {
    findings.push_back(fmt::format("rank {} did not do its part of {} ({})", chain.ranks.back(),
                                   call_name(ranks, seq), fmt::join(chain.ranks, " -> ")));
  }
}

}  // namespace

std::string name_of(const Entry& entry) {
  return entry.bucket >= 0 ? fmt::format("{}, bucket {}", entry.name, entry.bucket) : entry.name;
}

std::string seconds_of(std::int64_t us) {
  return fmt::format("{:.1f} s", static_cast<double>(us) / 1e6);
}

std::string call_name(const std::vector<RankRecord>& ranks, std::int64_t seq) {
  const Entry* entry = anybodys(ranks, seq);
  return entry ? fmt::format("#{} {}", seq, name_of(*entry)) : fmt::format("#{}", seq);
}

std::vector<std::string> find_culprits(const std::vector<RankRecord>& ranks) {
  Findings findings;
  const Waiting waiting = follow_all(ranks);
  find_own_ends(ranks, findings);
  find_missing(ranks, waiting, findings);
  if (!find_desync(ranks, findings)) {
    find_gone_on(ranks, waiting, findings);
    if (!find_behind(ranks, waiting, findings) && findings.empty()) find_stuck(ranks, waiting, findings);
  }
  if (findings.empty())
    findings.push_back("no rank is behind: all have finished every collective they entered");
  return findings;
}

}  // namespace athanor::tool
