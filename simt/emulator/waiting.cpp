#include "simt/emulator/waiting.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "simt/emulator/asynchronous.h"
#include "simt/emulator/cuda/device.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/race.h"
#include "simt/emulator/symbols.h"

// Each thread says what it waits for; the last that comes checks that all wait for the same, and releases
// them.

namespace simt {

std::string place(const Site& site) {
  return fmt::format("{}:{}", site.file, site.line);
}

namespace {

/// Where the calls that led somewhere return to, innermost first; from the frame pointers, which the race
/// build keeps.
struct Calls {
  static constexpr int kDepth = 6;
  const void* returns[kDepth] = {};

  static Calls from(const void* frame_address) {
    Calls calls;
    const auto* frame = static_cast<const void* const*>(frame_address);
    for (int i = 0; i < kDepth && frame && frame[1]; ++i) {
      calls.returns[i] = frame[1];
      frame = static_cast<const void* const*>(frame[0]);
    }
    return calls;
  }
  bool operator==(const Calls&) const = default;
};

enum class At : std::uint8_t { nowhere, barrier, collective, memory };

/// What a thread waits for, or has brought.
struct Waiter {
  At at;
  Together what;
  std::uint8_t bytes;
  unsigned mask, source;
  const void* in;
  void* out;
  Site site;
  Calls calls;              // race build
  const char* instruction;  // for Together::instruction: its name, and who does it
  WarpFunction run;
  const void* barrier;  // in memory
};

struct Warp {
  unsigned arrived[32];  // by the lowest lane of the mask: which lanes have come
};

struct State {
  std::vector<Waiter> threads;
  std::vector<Warp> warps;
  unsigned at_barrier = 0;
  int votes = 0, vote_result = 0;
};
State& state() {
  static State& result = *new State;
  return result;
}

Waiter& self() {
  return state().threads[executor().current_thread()];
}

std::string name(unsigned thread) {
  return executor().name(thread);
}

void release(unsigned thread) {
  state().threads[thread].at = At::nowhere;
  executor().release(thread);
}

#if defined(SIMT_RACE)
std::string lines_of(const Calls& calls) {
  std::string lines;
  for (const void* address : calls.returns) {
    if (address) lines += calls_at(address);
  }
  return lines;
}
// "a.h:10", and the lines from which it was called: "a.h:10, from k.cu:20".
std::string place(const Waiter& thread) {
  const std::string lines = lines_of(thread.calls);
  const auto first = lines.find(", from "), second = lines.find(", from ", first + 1);
  return place(thread.site) + (second == lines.npos ? "" : lines.substr(second));
}
// By the source: the compiler may have made several of one place, for threads that come different ways.
bool same_calls(const Calls& a, const Calls& b) {
  return a == b || lines_of(a) == lines_of(b);
}
#else
std::string place(const Waiter& thread) {
  return place(thread.site);
}
bool same_calls(const Calls&, const Calls&) {
  return true;
}
#endif

bool same_place(const Waiter& a, const Waiter& b) {
  return a.site.line == b.site.line && std::strcmp(a.site.file, b.site.file) == 0 &&
         same_calls(a.calls, b.calls);
}

std::string instruction_of(const Waiter& thread) {
  return thread.what == Together::instruction ? std::string(thread.instruction) + " " : std::string();
}
bool same_instruction(const Waiter& a, const Waiter& b) {
  return a.what != Together::instruction || std::strcmp(a.instruction, b.instruction) == 0;
}

// Opens the barrier for all, who must all be at the same one.
void open_barrier() {
  State& now = state();
  const auto waits = [](const Waiter& thread) { return thread.at == At::barrier; };
  const auto first = std::find_if(now.threads.begin(), now.threads.end(), waits);
  const auto first_thread = static_cast<unsigned>(first - now.threads.begin());
  for (unsigned thread = 0; thread < executor().threads(); ++thread) {
    const Waiter& other = now.threads[thread];
    if (executor().has_left(thread)) {
      std::string text =
          fmt::format("barrier divergence: thread {} has left the kernel, thread {} waits at {}",
                      name(thread), name(first_thread), place(first->site));
      executor().fail(std::move(text));
    }
    if (!same_place(other, *first)) {
      std::string text = fmt::format("barrier divergence: thread {} waits at {}, thread {} at {}",
                                     name(first_thread), place(*first), name(thread), place(other));
      executor().fail(std::move(text));
    }
  }
  ++executor().stats.block_barriers;
  race::block_barrier();
  now.vote_result = std::exchange(now.votes, 0);
  now.at_barrier = 0;
  executor().reorder();
  for (const unsigned thread : executor().order()) release(thread);
}

void run_instruction(unsigned warp, const Waiter& last) {
  WarpWork work{last.instruction, warp * 32, last.site, last.calls.returns[0], {}};
  for (unsigned lane = 0; lane < 32; ++lane)
    work.brought[lane] = state().threads[work.first_thread + lane].out;
  last.run(work);
}

// The last lane has come: hands the values out and lets the others go on.
void complete(unsigned warp, unsigned mask, const Waiter& last) {
  Waiter* const lanes = &state().threads[warp * 32];
  const auto first_lane = static_cast<unsigned>(std::countr_zero(mask));
  const Waiter& first = lanes[first_lane];
  unsigned ballot = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    const Waiter& to = lanes[lane];
    if (to.mask != first.mask || to.what != first.what || to.bytes != first.bytes ||
        !same_instruction(to, first) || !same_place(to, first)) {
      std::string text = fmt::format(
          "warp collective mismatch: thread {} at {}{} with mask {:#x}, thread {} at {}{} with mask {:#x}",
          name(warp * 32 + first_lane), instruction_of(first), place(first), first.mask,
          name(warp * 32 + lane), instruction_of(to), place(to), to.mask);
      executor().fail(std::move(text));
    }
    switch (last.what) {
      case Together::sync:
      case Together::instruction: break;
      case Together::ballot: ballot |= unsigned{*static_cast<const bool*>(to.in)} << lane; break;
      default:
        if (to.source > 31 || (mask >> to.source & 1) == 0) {
          std::string text =
              fmt::format("thread {} reads lane {} of its warp, which is not in the mask {:#x}, at {}",
                          name(warp * 32 + lane), to.source, mask, place(to.site));
          executor().fail(std::move(text));
        }
        std::memcpy(to.out, lanes[to.source].in, to.bytes);
    }
  }
  if (last.what == Together::instruction) run_instruction(warp, last);
  const auto turn = options().threads.kind == Order::Kind::forward ? 0u
                    : options().threads.kind == Order::Kind::reverse
                        ? 31u
                        : static_cast<unsigned>(executor().random().below(32));
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned lane = i ^ turn;
    if ((mask >> lane & 1) == 0) continue;
    if (last.what == Together::ballot) std::memcpy(lanes[lane].out, &ballot, sizeof(ballot));
    if (lanes[lane].at == At::collective) release(warp * 32 + lane);
  }
  if (last.what == Together::sync) race::warp_sync(warp, mask);  // the only one that orders memory
}

void gather(unsigned mask, const Site& site, const void* frame) {
  const unsigned thread = executor().current_thread(), lane = thread % 32, warp = thread / 32;
  const unsigned lanes = std::min(32u, executor().threads() - warp * 32);
  if (lanes < 32) mask &= (1u << lanes) - 1;  // a mask may name lanes the block does not have
  Waiter& me = self();
  me.mask = mask;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(frame);
  if ((mask >> lane & 1) == 0) {
    std::string text = fmt::format(
        "thread {} calls a warp collective with the mask {:#x}, which leaves its own lane {} out, at {}",
        name(thread), mask, lane, place(site));
    executor().fail(std::move(text));
  }
  const int leader = std::countr_zero(mask);
  unsigned& arrived = state().warps[warp].arrived[leader];
  arrived |= 1u << lane;
  if ((arrived & mask) != mask) {
    me.at = At::collective;
    executor().wait();
    return;
  }
  arrived &= ~mask;  // others may wait already, with a wider mask
  complete(warp, mask, me);
}

}  // namespace

void execute_together(const char* instruction, WarpFunction function, void* brought, const Site& site,
                      const void* frame) {
  Executor& now = executor();
  const unsigned thread = now.current_thread(), lanes = now.threads() - thread / 32 * 32;
  if (lanes < 32) {
    std::string text =
        fmt::format("{}: all 32 lanes of a warp execute it, but that of thread {} has {}, at {}", instruction,
                    name(thread), lanes, place(site));
    now.fail(std::move(text));
  }
  Waiter& me = self();
  me.what = Together::instruction;
  me.bytes = 0;
  me.out = brought;
  me.instruction = instruction;
  me.run = function;
  gather(~0u, site, frame);
}

void wait_in_memory(const void* barrier, const Site& site) {
  Waiter& me = self();
  me.at = At::memory;
  me.barrier = barrier;
  me.site = site;
  executor().wait();
}

std::vector<unsigned> release_waiting(const void* barrier) {
  std::vector<unsigned> released;
  for (const unsigned thread : executor().order()) {
    const Waiter& other = state().threads[thread];
    if (other.at != At::memory || other.barrier != barrier) continue;
    release(thread);
    released.push_back(thread);
  }
  return released;
}

// ---- what kernels call

int block_barrier(bool predicate, const Site& site) {
  State& now = state();
  Waiter& me = self();
  me.at = At::barrier;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(__builtin_frame_address(0));
  now.votes += predicate;
  if (++now.at_barrier + executor().left() == executor().threads()) open_barrier();
  executor().wait();
  return now.vote_result;
}

void warp_together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source, void* out,
                   const Site& site) {
  Waiter& me = self();
  me.what = what;
  me.bytes = static_cast<std::uint8_t>(bytes);
  me.source = source;
  me.in = in;
  me.out = out;
  gather(mask, site, __builtin_frame_address(0));
}

namespace waiting {

void begin_block(unsigned threads) {
  State& now = state();
  now.threads.resize(threads);
  for (Waiter& thread : now.threads) thread.at = At::nowhere;
  now.warps.assign((threads + 31) / 32, {});
  now.at_barrier = 0;
  now.votes = 0;
}

void thread_left() {
  if (const unsigned waits = state().at_barrier;
      waits > 0 && waits + executor().left() == executor().threads())
    open_barrier();
}

std::string stuck() {
  const unsigned count = executor().threads();
  std::string text = "deadlock:";
  int shown = 0;
  for (unsigned thread = 0; thread < count && shown < 4; ++thread) {
    const Waiter& other = state().threads[thread];
    if (other.at == At::barrier) {
      text += fmt::format(" thread {} waits at the barrier {};", name(thread), place(other.site));
      ++shown;
    } else if (other.at == At::memory) {
      text += fmt::format(" thread {} waits at {} for {};", name(thread), place(other.site),
                          executor().block_work().what_is_missing(other.barrier));
      ++shown;
    } else if (other.at == At::collective) {
      const unsigned warp = thread / 32, leader = std::countr_zero(other.mask);
      const unsigned missing = other.mask & ~state().warps[warp].arrived[leader];
      bool all_left = true;
      for (unsigned left = missing; left != 0; left &= left - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(left));
        all_left = all_left && executor().has_left(warp * 32 + lane);
      }
      const char* what = other.what == Together::instruction ? other.instruction : "the warp collective";
      text += fmt::format(
          " thread {} waits at {} {} for lanes {:#x}{};", name(thread), what, place(other.site), missing,
          all_left ? ", which have left the kernel: a mask must name only lanes that arrive" : "");
      ++shown;
    }
  }
  return text + fmt::format(" {} of {} threads have left the kernel", executor().left(), count);
}

}  // namespace waiting
}  // namespace simt
