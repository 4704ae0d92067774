#include "dist/watch/detail/culprit.h"

#include <algorithm>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include <fmt/ranges.h>

#include "dist/watch/wait_chain.h"

namespace athanor::dist {
namespace {

double seconds(std::int64_t us) {
  const std::int64_t tenths = us / 100'000;
  return static_cast<double>(tenths) / 10;
}

// The fields of an entry that matter here, as read from a file.
RankRecord::Entry as_read(const FlightRecord::Entry& entry) {
  RankRecord::Entry read;
  read.seq = entry.seq;
  read.name = entry.call.name;
  read.bucket = entry.call.bucket;
  read.last_us = entry.last_us;
  read.end_us = entry.end_us;
  read.bytes = entry.bytes;
  read.waits_for = entry.waits_for;
  return read;
}

std::string named(const RankRecord::Entry& entry) {
  std::string name = fmt::format("{} #{}", entry.name, entry.seq);
  if (entry.bucket >= 0) name += fmt::format(", bucket {}", entry.bucket);
  return name;
}

// The complete record, or its state at `until_us`.
RankRecord wait_for_record(const std::filesystem::path& folder, int rank, std::int64_t until_us) {
  for (;;) {
    RankRecord record = read_newest(record_file(folder, rank), rank);
    if (record.damage.empty() || FlightRecord::now_us() >= until_us) return record;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// If all ranks are present and wait for each other, or for one that did its part long ago, a message is lost:
// the chain ends at one of its two ends. `here`: whether a rank is on this host.
void end_at_lost_message(WaitChain& chain, const std::function<bool(int)>& here, int mine) {
  using End = WaitChain::End;
  if (chain.end != End::circle && (chain.end != End::passed || chain.late)) return;
  if (chain.end == End::circle) {
    // The rank with the least progress stalled first, and the ranks that wait for it stall as a consequence.
    const auto begin = std::find_if(chain.calls.begin(), chain.calls.end(),
                                    [&](const auto& call) { return call.seq == chain.calls.back().seq; });
    const auto first = std::min_element(begin, chain.calls.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    chain.calls.erase(first + 1, chain.calls.end());
    chain.ranks.resize(chain.calls.size() + 1);
  }
  const std::size_t hops = chain.calls.size();
  if (hops == 1) return;
  const int last = chain.ranks[hops], before = chain.ranks[hops - 1];
  const bool behind = chain.calls[hops - 1].seq < chain.calls[hops - 2].seq;
  if ((behind && chain.end == End::passed) || last == mine || (here(last) && !here(before))) {
    chain.ranks.pop_back();
    chain.calls.pop_back();
  }
}

}  // namespace

Culprit find_culprit(const FlightRecord& mine, const std::filesystem::path& folder,
                     std::chrono::microseconds patience) {
  const std::int64_t now = FlightRecord::now_us(), until = now + patience.count();
  const FlightRecord::Entry last = mine.oldest_open();
  if (last.seq < 0) return {fmt::format("rank {} has not reached its first collective", mine.rank())};
  const RankRecord::Entry entry = as_read(last);
  if (!entry.under_way()) {
    return {fmt::format("rank {} is in no collective: its last, {}, was done {} s ago", mine.rank(),
                        named(entry), seconds(now - entry.end_us))};
  }
  const double idle_s = seconds(now - entry.last_us);
  if (entry.waits_for < 0)
    return {fmt::format("{} made no progress for {} s, and waits for no rank", named(entry), idle_s)};

  std::map<int, RankRecord> records;
  int ended = -1;
  WaitChain chain = follow_waits(mine.rank(), entry, now - entry.last_us, [&](int rank) -> const RankRecord* {
    if (folder.empty()) return nullptr;
    const RankRecord& record = records.emplace(rank, wait_for_record(folder, rank, until)).first->second;
    if (record.reason == "error") ended = rank;
    return record.damage.empty() ? &record : nullptr;
  });
  if (chain.end == WaitChain::End::circle) ended = -1;
  end_at_lost_message(
      chain, [&](int rank) { return rank == mine.rank() || records[rank].host == mine.host(); }, mine.rank());
  const std::vector<int>& way = chain.ranks;
  return {fmt::format("rank {} did not do its part of {}, for {} s{}", way.back(), named(chain.calls.back()),
                      idle_s,
                      way.size() > 2 ? fmt::format(" (rank {})", fmt::join(way, " waits for rank ")) : ""),
          ended};
}

}  // namespace athanor::dist
