#include "dist/watch/wait_chain.h"

#include <algorithm>

namespace athanor::dist {
namespace {

// Ranks give up, and write their records, within about this time of each other.
constexpr std::int64_t kTogetherUs = 500'000;

}  // namespace

WaitChain follow_waits(int rank, const RankRecord::Entry& entry, std::int64_t idle_us,
                       const std::function<const RankRecord*(int)>& record_of) {
  using End = WaitChain::End;
  WaitChain chain;
  chain.ranks.push_back(rank);
  for (RankRecord::Entry call = entry; call.waits_for >= 0;) {
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
      const RankRecord::Entry* done = record->at(call.seq);
      chain.late = done && record->now_us - done->end_us + kTogetherUs < idle_us;
      return ends(End::passed);
    }
    if (!waits) return ends(End::absent);
    call = *record->last();
    idle_us = record->now_us - call.last_us;
  }
  return chain;
}

}  // namespace athanor::dist
