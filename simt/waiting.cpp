#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "simt/asynchronous.h"
#include "simt/symbols.h"
#include "simt/threads.h"

// What threads do together, block barriers and warp collectives, and what can be wrong with it.

namespace simt {

std::string place(const Site& site) {
  return fmt::format("{}:{}", site.file, site.line);
}

namespace {

#if defined(SIMT_RACE)
std::string lines_of(const Calls& calls) {
  std::string lines;
  for (const void* address : calls.returns) {
    if (address) lines += calls_at(address);
  }
  return lines;
}
// "a.h:10", and the lines from which it was called: "a.h:10, from k.cu:20".
std::string place(const Thread& thread) {
  const std::string lines = lines_of(thread.calls);
  const auto first = lines.find(", from "), second = lines.find(", from ", first + 1);
  return place(thread.site) + (second == lines.npos ? "" : lines.substr(second));
}
// By the source: the compiler may have made several of one place, for threads that come different ways.
bool same_calls(const Calls& a, const Calls& b) {
  return a == b || lines_of(a) == lines_of(b);
}
#else
std::string place(const Thread& thread) {
  return place(thread.site);
}
bool same_calls(const Calls&, const Calls&) {
  return true;
}
#endif

bool same_place(const Thread& a, const Thread& b) {
  return a.site.line == b.site.line && std::strcmp(a.site.file, b.site.file) == 0 &&
         same_calls(a.calls, b.calls);
}

std::string instruction_of(const Thread& thread) {
  return thread.what == Together::instruction ? std::string(thread.instruction) + " " : std::string();
}
bool same_instruction(const Thread& a, const Thread& b) {
  return a.what != Together::instruction || std::strcmp(a.instruction, b.instruction) == 0;
}

}  // namespace

int Executor::barrier(bool predicate, const Site& site, const void* frame) {
  Thread& me = self();
  me.state = State::at_barrier;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(frame);
  votes_ += predicate;
  if (++waiting_ + done_ == count_) open_barrier();
  wait();
  return vote_result_;
}

void Executor::open_barrier() {
  const auto waits = [](const Thread& thread) { return thread.state == State::at_barrier; };
  const auto first = std::find_if(threads_.begin(), threads_.begin() + count_, waits);
  const auto first_thread = static_cast<unsigned>(first - threads_.begin());
  for (unsigned thread = 0; thread < count_; ++thread) {
    const Thread& other = threads_[thread];
    if (other.state == State::done) {
      std::string text =
          fmt::format("barrier divergence: thread {} has left the kernel, thread {} waits at {}",
                      name(thread), name(first_thread), place(first->site));
      fail(std::move(text));
    }
    if (!same_place(other, *first)) {
      std::string text = fmt::format("barrier divergence: thread {} waits at {}, thread {} at {}",
                                     name(first_thread), place(*first), name(thread), place(other));
      fail(std::move(text));
    }
  }
  ++stats.block_barriers;
  race::block_barrier();
  vote_result_ = std::exchange(votes_, 0);
  waiting_ = 0;
  reorder();
  for (unsigned i = 0; i < count_; ++i) release(order_[i]);
}

void Executor::together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source,
                        void* out, const Site& site, const void* frame) {
  Thread& me = self();
  me.what = what;
  me.bytes = static_cast<std::uint8_t>(bytes);
  me.source = source;
  me.in = in;
  me.out = out;
  gather(mask, site, frame);
}

void Executor::together(const char* instruction, WarpFunction function, void* brought, const Site& site,
                        const void* frame) {
  Thread& me = self();
  const unsigned first = current_->thread / 32 * 32;
  if (count_ - first < 32) {
    std::string text =
        fmt::format("{}: all 32 lanes of a warp execute it, but that of thread {} has {}, at {}", instruction,
                    name(current_->thread), count_ - first, place(site));
    fail(std::move(text));
  }
  me.what = Together::instruction;
  me.bytes = 0;
  me.out = brought;
  me.instruction = instruction;
  me.run = function;
  gather(~0u, site, frame);
}

void Executor::gather(unsigned mask, const Site& site, const void* frame) {
  const unsigned thread = current_->thread, lane = thread % 32, warp = thread / 32;
  const unsigned lanes = std::min(32u, count_ - warp * 32);
  if (lanes < 32) mask &= (1u << lanes) - 1;  // a mask may name lanes the block does not have
  Thread& me = threads_[thread];
  me.mask = mask;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(frame);
  if ((mask >> lane & 1) == 0) {
    std::string text = fmt::format(
        "thread {} calls a warp collective with the mask {:#x}, which leaves its own lane {} out, at {}",
        name(thread), mask, lane, place(site));
    fail(std::move(text));
  }
  const int leader = std::countr_zero(mask);
  unsigned& arrived = warps_[warp].arrived[leader];
  arrived |= 1u << lane;
  if ((arrived & mask) != mask) {
    me.state = State::at_collective;
    wait();
    return;
  }
  arrived &= ~mask;  // others may wait already, with a wider mask
  complete(warp, mask, me);
}

// The last lane has come: hands the values out and lets the others go on.
void Executor::complete(unsigned warp, unsigned mask, const Thread& last) {
  ++stats.warp_collectives;
  Thread* const lanes = &threads_[warp * 32];
  const auto first_lane = static_cast<unsigned>(std::countr_zero(mask));
  const Thread& first = lanes[first_lane];
  unsigned ballot = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    const Thread& to = lanes[lane];
    if (to.mask != first.mask || to.what != first.what || to.bytes != first.bytes ||
        !same_instruction(to, first) || !same_place(to, first)) {
      std::string text = fmt::format(
          "warp collective mismatch: thread {} at {}{} with mask {:#x}, thread {} at {}{} with mask {:#x}",
          name(warp * 32 + first_lane), instruction_of(first), place(first), first.mask,
          name(warp * 32 + lane), instruction_of(to), place(to), to.mask);
      fail(std::move(text));
    }
    switch (last.what) {
      case Together::sync:
      case Together::instruction: break;
      case Together::ballot: ballot |= unsigned{*static_cast<const bool*>(to.in)} << lane; break;
      case Together::match:
      case Together::reduce:
        for (unsigned from = 0; from < 32; ++from) {
          if ((mask >> from & 1) != 0) {
            std::memcpy(static_cast<char*>(to.out) + from * to.bytes, lanes[from].in, to.bytes);
          }
        }
        break;
      default:
        if (to.source > 31 || (mask >> to.source & 1) == 0) {
          std::string text =
              fmt::format("thread {} reads lane {} of its warp, which is not in the mask {:#x}, at {}",
                          name(warp * 32 + lane), to.source, mask, place(to.site));
          fail(std::move(text));
        }
        std::memcpy(to.out, lanes[to.source].in, to.bytes);
    }
  }
  if (last.what == Together::instruction) run_instruction(warp, last);
  const auto turn = options().threads.kind == Order::Kind::forward ? 0u
                    : options().threads.kind == Order::Kind::reverse
                        ? 31u
                        : static_cast<unsigned>(random_.below(32));
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned lane = i ^ turn;
    if ((mask >> lane & 1) == 0) continue;
    if (last.what == Together::ballot) std::memcpy(lanes[lane].out, &ballot, sizeof(ballot));
    if (lanes[lane].state == State::at_collective) release(warp * 32 + lane);
  }
  if (last.what == Together::sync) race::warp_sync(warp, mask);  // the only one that orders memory
}

void Executor::run_instruction(unsigned warp, const Thread& last) {
  WarpWork work{last.instruction, warp * 32, last.site, last.calls.returns[0], {}};
  for (unsigned lane = 0; lane < 32; ++lane) work.brought[lane] = threads_[work.first_thread + lane].out;
  last.run(work);
}

void Executor::wait_in_memory(const void* barrier, unsigned parity, const Site& site) {
  Thread& me = self();
  me.state = State::in_memory;
  me.barrier = barrier;
  me.parity = parity;
  me.site = site;
  wait();
}

std::vector<unsigned> Executor::release_waiting(const void* barrier) {
  something_happened();
  std::vector<unsigned> released;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& other = threads_[order_[i]];
    if (other.state == State::in_memory && other.barrier == barrier) {
      release(order_[i]);
      released.push_back(order_[i]);
    }
  }
  return released;
}

void Executor::poll(const Site& site) {
  if (++polls_ % (2 * count_) == 0 && run_one_asynchronous()) return;
  if (polls_ > 1000 * (count_ + 1)) {
    std::string text = fmt::format("thread {} polls forever at {}: no other thread can make progress",
                                   name(current_->thread), place(site));
    fail(std::move(text));
  }
  release(current_->thread);
  wait();
}

// Nobody can go on, and not all are done.
std::string Executor::stuck() const {
  std::string text = "deadlock:";
  int shown = 0;
  for (unsigned thread = 0; thread < count_ && shown < 4; ++thread) {
    const Thread& other = threads_[thread];
    if (other.state == State::at_barrier) {
      text += fmt::format(" thread {} waits at the barrier {};", name(thread), place(other.site));
      ++shown;
    } else if (other.state == State::in_memory) {
      text += fmt::format(" thread {} waits at {} for {};", name(thread), place(other.site),
                          async::what_is_missing(other.barrier, other.parity));
      ++shown;
    } else if (other.state == State::at_collective) {
      const unsigned warp = thread / 32, leader = std::countr_zero(other.mask);
      const unsigned missing = other.mask & ~warps_[warp].arrived[leader];
      bool all_left = true;
      for (unsigned left = missing; left != 0; left &= left - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(left));
        all_left = all_left && threads_[warp * 32 + lane].state == State::done;
      }
      const char* what = other.what == Together::instruction ? other.instruction : "the warp collective";
      text += fmt::format(
          " thread {} waits at {} {} for lanes {:#x}{};", name(thread), what, place(other.site), missing,
          all_left ? ", which have left the kernel: a mask must name only lanes that arrive" : "");
      ++shown;
    }
  }
  return text + fmt::format(" {} of {} threads have left the kernel", done_, count_);
}

}  // namespace simt
