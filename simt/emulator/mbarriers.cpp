#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "simt/emulator/asynchronous.h"
#include "simt/emulator/operands.h"
#include "simt/mbarrier.h"
#if defined(SIMT_RACE)
#include "simt/emulator/block_order.h"
#endif

// Barriers in shared memory, and the fences between the proxies. Their state is kept here, by address; in the
// race build each is also a clock, and an agent that stands for the copies that it counts.

namespace simt {
namespace async {
namespace {

constexpr unsigned kMaxArrivals = (1u << 20) - 1;
constexpr long kMaxBytes = (1l << 20) - 1;

struct State {
  Site site;  // of its init
  unsigned count = 0, pending = 0;
  long bytes = 0;           // still expected in this phase
  std::uint32_t phase = 0;  // the one that is not complete
  bool fenced = false;      // since its init
  // Copies that were started in this phase and have not come, one of them, and how far threads have waited.
  unsigned under_way = 0;
  Site copy;
  std::uint32_t copied_phases = 0, seen_phases = 0;
#if defined(SIMT_RACE)
  race::Stamp init;
  unsigned agent = 0;
  race::BlockOrder::Clock arriving, complete;
#endif
};

using Table = std::unordered_map<const void*, State>;
Table& table() {
  static Table& result = *new Table;
  return result;
}

State& find(const char* instruction, MemoryBarrier* barrier, const Site& site) {
  const unsigned thread = executor().current_thread();
  check_address(instruction, thread, barrier, 8, Where::shared, site);
  const auto found = table().find(barrier);
  if (found == table().end())
    refuse(instruction, thread, "names a barrier that no thread has initialised", site);
  return found->second;
}

std::string lacks(const State& state) {
  std::string text = fmt::format("phase {} of the barrier of {}", state.phase, place(state.site));
  if (state.pending > 0) text += fmt::format(", which lacks {} of {} arrivals", state.pending, state.count);
  if (state.bytes > 0) text += fmt::format(", which lacks {} bytes", state.bytes);
  if (state.bytes < 0) text += fmt::format(", which got {} bytes that no thread expects", -state.bytes);
  return text;
}

void complete_if_done(MemoryBarrier* barrier, State& state, const Site& site) {
  if (state.pending > 0 || state.bytes != 0) return;
  if (state.under_way > 0) {
    refuse("mbarrier", executor().current_thread(),
           fmt::format("completes phase {} of the barrier of {}, but the copy of {} is still in flight: no "
                       "thread expects its bytes",
                       state.phase, place(state.site), place(state.copy)),
           site);
  }
  ++state.phase;
  state.pending = state.count;
#if defined(SIMT_RACE)
  state.complete = state.arriving;
  race::block_order().learn(state.complete, state.agent, state.phase);
#endif
  // They know what was so when this phase ended, not what comes before they run.
  for ([[maybe_unused]] const unsigned thread : release_waiting(barrier)) {
    state.seen_phases = state.phase;
#if defined(SIMT_RACE)
    race::block_order().acquire(thread, state.complete);
#endif
  }
}

}  // namespace

void begin_block_barriers() {
  table().clear();
}

CountedCopy count_copy(const char* instruction, unsigned thread, MemoryBarrier* barrier, const Site& site) {
  State& state = find(instruction, barrier, site);
  bool fenced = state.fenced;
#if defined(SIMT_RACE)
  fenced = race::counts() || race::block_order().fenced(state.init, thread, true);
#endif
  if (!fenced) {
    refuse(instruction, thread,
           fmt::format("names the barrier initialised at {}, with no fence.mbarrier_init or "
                       "fence.proxy.async in between",
                       place(state.site)),
           site);
  }
  ++state.under_way;
  state.copy = site;
  state.copied_phases = state.phase + 1;
#if defined(SIMT_RACE)
  return {barrier, state.agent, state.phase + 1};
#else
  return {barrier, 0, 0};
#endif
}

void bytes_came(const CountedCopy& copy, unsigned bytes) {
  State& state = table().at(copy.barrier);
  state.bytes -= bytes;
  --state.under_way;
  if (state.bytes < -kMaxBytes)
    refuse("mbarrier", executor().current_thread(), "gets more bytes than it can count", state.copy);
  complete_if_done(copy.barrier, state, state.copy);
}

std::string what_is_missing(const void* barrier) {
  const auto found = table().find(barrier);
  return found == table().end() ? std::string("a barrier that no longer exists") : lacks(found->second);
}

std::string end_block_barriers() {
  for (const auto& [barrier, state] : table()) {
    if (state.copied_phases > state.seen_phases) {
      return fmt::format(
          "a copy to shared memory, started at {}, may arrive after the block has ended: no thread waited "
          "for phase {} of the barrier of {}",
          place(state.copy), state.copied_phases - 1, place(state.site));
    }
  }
  return {};
}

}  // namespace async

namespace emulated {

void mbarrier_init(MemoryBarrier* barrier, unsigned arrivals, const Site& site) {
  const unsigned thread = executor().current_thread();
  check_address("mbarrier.init", thread, barrier, 8, Where::shared, site);
  if (arrivals == 0 || arrivals > async::kMaxArrivals) {
    refuse("mbarrier.init", thread, fmt::format("sets {} arrivals, not 1 to 2^20 - 1", arrivals), site);
  }
  async::used() = true;
  const auto [found, is_new] = async::table().try_emplace(barrier);
  if (!is_new) {
    refuse("mbarrier.init", thread,
           fmt::format("initialises a barrier that is in use since {}", place(found->second.site)), site);
  }
  async::State& state = found->second;
  state.site = site;
  state.count = state.pending = arrivals;
  std::memset(barrier, 0, sizeof(*barrier));
  race::access_by(thread, barrier, sizeof(*barrier), Access::write, __builtin_return_address(0));
#if defined(SIMT_RACE)
  race::BlockOrder& order = race::block_order();
  state.agent = race::new_agent("wait for its mbarrier");
  state.init.thread = thread & 0xfffu;
  state.init.block_epoch = order.block_epoch();
  state.init.lane_epoch = order.epoch_of(thread);
#endif
}

void mbarrier_arrive(MemoryBarrier* barrier, unsigned expected_bytes, const Site& site) {
  const char* const name = expected_bytes > 0 ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive";
  const unsigned thread = executor().current_thread();
  async::State& state = async::find(name, barrier, site);
  race::access_by(thread, barrier, sizeof(*barrier), Access::atomic, __builtin_return_address(0));
  state.bytes += expected_bytes;
  if (state.bytes > async::kMaxBytes) {
    refuse(name, thread, fmt::format("expects {} bytes in one phase, more than 2^20 - 1", state.bytes), site);
  }
  if (state.pending == 0) {
    refuse(name, thread, fmt::format("exceeds the {} arrivals of {}", state.count, async::lacks(state)),
           site);
  }
#if defined(SIMT_RACE)
  race::block_order().release(thread, state.arriving);
#endif
  --state.pending;
  async::complete_if_done(barrier, state, site);
}

void mbarrier_wait(MemoryBarrier* barrier, unsigned parity, const Site& site) {
  constexpr auto kName = "mbarrier.try_wait";
  const unsigned thread = executor().current_thread();
  if (parity > 1) refuse(kName, thread, fmt::format("waits for parity {}, not 0 or 1", parity), site);
  async::State& state = async::find(kName, barrier, site);
  race::access_by(thread, barrier, sizeof(*barrier), Access::atomic, __builtin_return_address(0));
  if ((state.phase & 1) == parity) return wait_in_memory(barrier, site);
  state.seen_phases = std::max(state.seen_phases, state.phase);
#if defined(SIMT_RACE)
  race::block_order().acquire(thread, state.complete);
#endif
}

void fence_proxy_async(bool for_barriers_only) {
  const unsigned thread = executor().current_thread();
  for (auto& [barrier, state] : async::table()) state.fenced = true;
#if defined(SIMT_RACE)
  race::block_order().fence(thread, for_barriers_only);
#endif
  char* const shared = static_cast<char*>(executor().shared().data());
  char* const copy = for_barriers_only || !shared ? nullptr : async::proxy_copy(shared);
  if (copy) std::memcpy(copy, shared, executor().shared().bytes());
  (void)thread;
}

}  // namespace emulated
}  // namespace simt
