#include "dist/detail/blame.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/ranges.h>

#include "dist/flight_report.h"

namespace athanor::dist {
namespace {

double to_tenths(std::int64_t us) {
  return static_cast<double>(us / 100'000) / 10;
}

std::string named(const FlightRecord::Entry& entry) {
  std::string name = fmt::format("{} #{}", entry.call.name, entry.seq);
  if (entry.call.bucket >= 0) name += fmt::format(", bucket {}", entry.call.bucket);
  return name;
}

// What `entry`, its last, was at `now_us`. `chain`: who waits for whom, from this rank to the one to blame.
std::string doing(const FlightRecord& mine, const FlightRecord::Entry& entry, std::int64_t now_us,
                  const std::vector<int>& chain) {
  if (entry.seq < 0) return fmt::format("rank {} has not come to its first collective", mine.rank());
  if (!entry.under_way()) {
    return fmt::format("rank {} is in no collective: its last, {}, was done {} s ago", mine.rank(),
                       named(entry), to_tenths(now_us - entry.end_us));
  }
  const double idle_s = to_tenths(now_us - entry.last_us);
  if (entry.waits_for < 0)
    return fmt::format("{} got no further for {} s, and waits for nobody", named(entry), idle_s);
  return fmt::format("rank {} did not do its part of {}, for {} s{}",
                     chain.empty() ? static_cast<int>(entry.waits_for) : chain.back(), named(entry), idle_s,
                     chain.size() > 2 ? fmt::format(" (rank {})", fmt::join(chain, " waits for rank ")) : "");
}

// Whole, or what there is of it at `until_us`.
RankRecord wait_for_record(const std::filesystem::path& folder, int rank, std::int64_t until_us) {
  for (;;) {
    RankRecord record = read_record(record_file(folder, rank), rank);
    if (record.damage.empty() || FlightRecord::now_us() >= until_us) return record;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

std::string doing(const FlightRecord& mine) {
  return doing(mine, mine.last(), FlightRecord::now_us(), {});
}

Blame find_blame(const FlightRecord& mine, const std::filesystem::path& folder,
                 std::chrono::milliseconds patience) {
  const FlightRecord::Entry entry = mine.last();
  const std::int64_t now = FlightRecord::now_us(), until = now + std::chrono::microseconds(patience).count();
  std::vector<int> chain{mine.rank()};
  int ended = -1;
  for (std::int64_t next = entry.under_way() ? entry.waits_for : -1; next >= 0;) {
    if (std::find(chain.begin(), chain.end(), next) != chain.end()) return {doing(mine, entry, now, {})};
    chain.push_back(static_cast<int>(next));
    if (folder.empty()) break;
    const RankRecord record = wait_for_record(folder, chain.back(), until);
    if (record.reason == "error") ended = chain.back();
    const RankRecord::Entry* theirs = record.damage.empty() ? record.at(entry.seq) : nullptr;
    next = theirs && theirs->under_way() ? theirs->waits_for : -1;
  }
  return {doing(mine, entry, now, chain), ended};
}

}  // namespace athanor::dist
