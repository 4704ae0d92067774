#include "dist/watch/detail/blame.h"

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

// What a report reads from a file, as far as it matters here.
RankRecord::Entry as_read(const FlightRecord::Entry& entry) {
  RankRecord::Entry read;
  read.seq = entry.seq;
  read.name = entry.call.name;
  read.bucket = entry.call.bucket;
  read.last_us = entry.last_us;
  read.end_us = entry.end_us;
  read.waits_for = entry.waits_for;
  return read;
}

std::string named(const RankRecord::Entry& entry) {
  std::string name = fmt::format("{} #{}", entry.name, entry.seq);
  if (entry.bucket >= 0) name += fmt::format(", bucket {}", entry.bucket);
  return name;
}

// Whole, or what there is of it at `until_us`.
RankRecord wait_for_record(const std::filesystem::path& folder, int rank, std::int64_t until_us) {
  for (;;) {
    RankRecord record = read_newest(record_file(folder, rank), rank);
    if (record.damage.empty() || FlightRecord::now_us() >= until_us) return record;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Blame find_blame(const FlightRecord& mine, const std::filesystem::path& folder,
                 std::chrono::microseconds patience) {
  using End = WaitChain::End;
  const std::int64_t now = FlightRecord::now_us(), until = now + patience.count();
  const FlightRecord::Entry last = mine.last();
  if (last.seq < 0) return {fmt::format("rank {} has not come to its first collective", mine.rank())};
  const RankRecord::Entry entry = as_read(last);
  if (!entry.under_way()) {
    return {fmt::format("rank {} is in no collective: its last, {}, was done {} s ago", mine.rank(),
                        named(entry), seconds(now - entry.end_us))};
  }
  const double idle_s = seconds(now - entry.last_us);
  if (entry.waits_for < 0)
    return {fmt::format("{} got no further for {} s, and waits for nobody", named(entry), idle_s)};

  std::map<int, RankRecord> records;
  int ended = -1;
  WaitChain chain = follow_waits(mine.rank(), entry, now - entry.last_us, [&](int rank) -> const RankRecord* {
    if (folder.empty()) return nullptr;
    const RankRecord& record = records.emplace(rank, wait_for_record(folder, rank, until)).first->second;
    if (record.reason == "error") ended = rank;
    return record.damage.empty() ? &record : nullptr;
  });
  if (chain.end == End::circle) {  // the next is as good as any
    return {
        fmt::format("rank {} did not do its part of {}, for {} s", entry.waits_for, named(entry), idle_s)};
  }
  const std::size_t hops = chain.calls.size();
  if (chain.end == End::passed && !chain.late && hops > 1 &&
      chain.calls[hops - 1].seq < chain.calls[hops - 2].seq) {
    chain.ranks.pop_back();  // whom the one that is behind waits for has long done its part
    chain.calls.pop_back();
  }
  const std::vector<int>& way = chain.ranks;
  return {fmt::format("rank {} did not do its part of {}, for {} s{}", way.back(), named(chain.calls.back()),
                      idle_s,
                      way.size() > 2 ? fmt::format(" (rank {})", fmt::join(way, " waits for rank ")) : ""),
          ended};
}

}  // namespace athanor::dist
