#include "dist/transports/thread_transport.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/transports/slots.h"
#include "kernels/cpu/context.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

using Clock = std::chrono::steady_clock;

enum class State : std::uint8_t { idle, waiting, complete, misfit };

/// A message as seen by one end. Written by its owner before posting, then by the thread that finds the other
/// end, then by its owner again; `state` transfers ownership.
struct Slot {
  std::atomic<State> state{State::idle};
  std::byte* data = nullptr;
  std::size_t bytes = 0, other_bytes = 0;
  int peer = 0, mailbox = 0;
  bool sends = false;
  Tag tag = 0;
  Clock::time_point ready;
};

/// Unmatched ends of messages to one rank.
struct Mailbox {
  struct Entry {
    Slot* slot;
    int from;
    Tag tag;
  };
  std::mutex mutex;
  std::vector<Entry> sends, receives;
};

}  // namespace

struct ThreadJob::Shared {
  /// Whether a rank is lost or silent: shared with a job's duplicates.
  struct RankState {
    std::atomic<bool> lost{false}, stopped{false};
  };
  using RankStates = std::vector<RankState>;

  Shared(int world_size, const ThreadFaults& wanted, std::shared_ptr<RankStates> known = nullptr)
      : faults(wanted),
        mailboxes(static_cast<std::size_t>(world_size)),
        states(known ? std::move(known) : std::make_shared<RankStates>(mailboxes.size())) {
    // Space for several collectives in flight: matching depends on timing, and no message should allocate for
    // it.
    for (Mailbox& box : mailboxes) {
      box.sends.reserve(room(world_size));
      box.receives.reserve(room(world_size));
    }
  }
  static std::size_t room(int world_size) { return 16 + 8 * static_cast<std::size_t>(world_size); }

  RankState& state(int rank) const { return (*states)[static_cast<std::size_t>(rank)]; }
  Clock::time_point arrival() {
    Clock::time_point now = Clock::now();
    if (faults.delay.count() > 0) {
      const std::uint64_t word = kernels::mix64(faults.seed + drawn.fetch_add(1, std::memory_order_relaxed));
      now += std::chrono::microseconds(word % static_cast<std::uint64_t>(faults.delay.count() + 1));
    }
    return now;
  }

  /// The `count`-th duplicate of this network, created by the first caller.
  Shared& duplicate(std::size_t count) {
    const std::lock_guard lock(mutex);
    while (duplicates.size() <= count)
      duplicates.push_back(std::make_unique<Shared>(static_cast<int>(mailboxes.size()), faults, states));
    return *duplicates[count];
  }

  ThreadFaults faults;
  std::atomic<std::uint64_t> drawn{0};
  std::vector<Mailbox> mailboxes;
  std::shared_ptr<RankStates> states;
  std::mutex mutex;  // guards the duplicates
  std::vector<std::unique_ptr<Shared>> duplicates;
  std::vector<std::unique_ptr<End>> ends;
};

class ThreadJob::End final : public Transport {
 public:
  End(Shared& shared, int rank, int world_size) : Transport(rank, world_size), shared_(shared) {
    slots_.reserve(Shared::room(world_size));
  }

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override {
    // The const_cast is safe: only a receive's slot is written.
    return post(to, tag, {const_cast<std::byte*>(bytes.data()), bytes.size()}, true);
  }
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override {
    return post(from, tag, bytes, false);
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    Slot& slot = slots_[request];
    const State state = slot.state.load(std::memory_order_acquire);
    if (state == State::waiting) {
      if (!shared_.state(slot.peer).lost.load(std::memory_order_acquire)) return false;
      // It may have arrived just before.
      if (slot.state.load(std::memory_order_acquire) == State::waiting)
        detail::fail<PeerLostError>("rank {} is gone, and rank {} has a message of {} bytes {} it", slot.peer,
                                    rank(), slot.bytes, slot.sends ? "for" : "pending from");
      return false;
    }
    if (state == State::misfit) {
      detail::fail<Error>(
          "transport: a message must have the size its receiver expects, but rank {} {} {} bytes and rank {} "
          "has {} (tag {})",
          rank(), slot.sends ? "sends" : "expects", slot.bytes, slot.peer, slot.other_bytes, slot.tag);
    }
    if (Clock::now() < slot.ready) return false;
    release(request);
    return true;
  }

  void cancel(Request& request) noexcept override {
    if (!request.pending()) return;
    withdraw(slots_[request]);
    release(request);
  }

  std::unique_ptr<Transport> duplicate() override {
    return std::make_unique<End>(shared_.duplicate(duplicates_++), rank(), world_size());
  }

  bool duplicates_are_concurrent() const override { return !shared_.faults.in_order; }

  void abandon() noexcept override {
    for (Slot& slot : slots_) withdraw(slot);
  }

 private:
  // Afterwards no end finds it, and any end that had found it is done with its memory.
  void withdraw(Slot& slot) noexcept {
    Mailbox& box = shared_.mailboxes[static_cast<std::size_t>(slot.mailbox)];
    const std::lock_guard lock(box.mutex);
    std::erase_if(slot.sends ? box.sends : box.receives,
                  [&](const Mailbox::Entry& entry) { return entry.slot == &slot; });
  }

  Request post(int peer, Tag tag, std::span<std::byte> bytes, bool sends) {
    check_peer(peer);
    const Request request = slots_.take();
    Slot& slot = slots_[request];
    slot.data = bytes.data();
    slot.bytes = bytes.size();
    slot.peer = peer;
    slot.mailbox = sends ? peer : rank();
    slot.sends = sends;
    slot.tag = tag;
    slot.state.store(State::waiting, std::memory_order_relaxed);
    if (shared_.state(rank()).stopped || shared_.state(peer).stopped) return request;

    Mailbox& box = shared_.mailboxes[static_cast<std::size_t>(slot.mailbox)];
    const int from = sends ? rank() : peer;
    const std::lock_guard lock(box.mutex);
    std::vector<Mailbox::Entry>& others = sends ? box.receives : box.sends;
    for (auto it = others.begin(); it != others.end(); ++it) {
      if (it->from != from || it->tag != tag) continue;
      Slot& other = *it->slot;
      others.erase(it);
      sends ? deliver(slot, other) : deliver(other, slot);
      return request;
    }
    (sends ? box.sends : box.receives).push_back({&slot, from, tag});
    return request;
  }

  void deliver(Slot& from, Slot& to) {
    const bool fits = from.bytes == to.bytes;
    from.other_bytes = to.bytes;
    to.other_bytes = from.bytes;
    if (fits && from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
    for (Slot* slot : {&from, &to}) {
      slot->ready = shared_.arrival();
      slot->state.store(fits ? State::complete : State::misfit, std::memory_order_release);
    }
  }

  void release(Request& request) {
    slots_[request].state.store(State::idle, std::memory_order_relaxed);
    slots_.release(request);
  }

  Shared& shared_;
  std::size_t duplicates_ = 0;
  Slots<Slot> slots_;
};

ThreadJob::ThreadJob(int world_size, const ThreadFaults& faults) {
  ATH_CHECK(world_size >= 1, "ranks: there must be at least one, but got {}", world_size);
  shared_ = std::make_unique<Shared>(world_size, faults);
  for (int rank = 0; rank < world_size; ++rank)
    shared_->ends.push_back(std::make_unique<End>(*shared_, rank, world_size));
}
ThreadJob::~ThreadJob() = default;

Transport& ThreadJob::transport(int rank) {
  return *shared_->ends[static_cast<std::size_t>(rank)];
}
void ThreadJob::lose(int rank) {
  shared_->state(rank).lost.store(true, std::memory_order_release);
}
void ThreadJob::stop(int rank) {
  shared_->state(rank).stopped = true;
}

void run_ranks(ThreadJob& job, int world_size, const std::function<void(Transport&)>& f) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        cpu_context().set_threads(1);
        f(job.transport(rank));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      job.lose(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void run_ranks(int world_size, const std::function<void(Transport&)>& f, const ThreadFaults& faults) {
  ThreadJob job(world_size, faults);
  run_ranks(job, world_size, f);
}

}  // namespace athanor::dist
