#include "kernels/cpu/thread_team.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tensor/base/error.h"

namespace athanor::cpu {
namespace {

/// How often a thread looks for work before it sleeps. Waking it may take 100 us in a virtual machine, so it
/// looks for longer than that: for 250 us on a Zen 3, some 600 us on an Intel, whose pauses are longer.
/// Beside busy processes that would use up its share of the CPU, so it then looks for a sixteenth of that.
constexpr int kLooks = 16'000, kFewLooks = 1000;

/// For how long the CPU counts as busy after a thread was found kept from running.
constexpr auto kBusyFor = std::chrono::milliseconds(50);

constinit thread_local bool inside = false;  ///< this thread is within a piece

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// std::atomic::wait() first yields the CPU some times. A busy process then has it for milliseconds.
void sleep_while(std::atomic<std::uint32_t>& value, std::uint32_t same) {
  ::syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, same, nullptr, nullptr, 0);
}
void wake(std::atomic<std::uint32_t>& value) {  // the one thread that sleeps on it
  ::syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

/// Whether done() was true within so many looks.
template <class F> bool spin_until(int looks, const F& done) {
  for (int look = 0; look < looks; ++look) {
    if (done()) return true;
    pause();
  }
  return false;
}

}  // namespace

LoopThreads loop_threads() {
#if defined(_OPENMP)
  static const LoopThreads found = [] {
    const char* const policy = std::getenv("OMP_WAIT_POLICY");
    const bool passive =
        policy && (std::string_view(policy) == "passive" || std::string_view(policy) == "PASSIVE");
    return passive ? LoopThreads::own : LoopThreads::openmp;
  }();
  return found;
#else
  return LoopThreads::none;
#endif
}

ThreadTeam::ThreadTeam() = default;

ThreadTeam::~ThreadTeam() {
  ends_ = true;
  for (const auto& worker : workers_) {
    ring(*worker);
    worker->thread.join();
  }
}

void ThreadTeam::start_workers(int count) {
  while (static_cast<int>(workers_.size()) < std::min(count, most_workers_)) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    const int first = static_cast<int>(workers_.size());
    try {
      worker.thread = std::thread([this, &worker, first] { work(worker, first); });
    } catch (const std::system_error&) {  // no more threads for this user: those that are there do all
      workers_.pop_back();
      most_workers_ = first - 1;
    }
  }
}

void ThreadTeam::ring(Worker& worker) {
  // A worker that is not seen asleep here sees the bell rung before it sleeps.
  ++worker.bell;
  if (worker.sleeps) wake(worker.bell);
}

void ThreadTeam::run(int pieces, Call call, const void* data) {
  ATH_CHECK(pieces >= 0 && pieces <= kMaxPieces, "ThreadTeam: pieces must be in [0, {}], but got {}",
            kMaxPieces, pieces);
  if (inside || pieces < 2) {
    for (int piece = 0; piece < pieces; ++piece) call(data, piece);
    return;
  }
  start_workers(pieces - 1);
  call_ = call;
  data_ = data;
  unfinished_ = static_cast<std::uint32_t>(pieces);
  const Loop loop{loop_.load().number + 1, pieces};
  rests_ = false;
  loop_ = loop;
  const int workers = std::min(pieces - 1, static_cast<int>(workers_.size()));
  for (int worker = 0; worker < workers; ++worker) ring(*workers_[worker]);
  take_pieces(loop, 0);
  wait_until_done();
}

bool ThreadTeam::take(Loop loop, int piece) {
  // A loop ends only when all its pieces are taken. So to a thread that comes late they are taken, by that
  // loop or a later one; and while a piece is not finished, call_ and data_ are its loop's.
  std::uint32_t taken = taken_[piece];
  if (static_cast<std::int32_t>(loop.number - taken) <= 0) return false;
  if (!taken_[piece].compare_exchange_strong(taken, loop.number)) return false;
  inside = true;
  call_(data_, piece);
  inside = false;
  if (--unfinished_ == 0 && caller_sleeps_) wake(unfinished_);
  return true;
}

void ThreadTeam::take_pieces(Loop loop, int first) {
  take(loop, first);
  // The others get some time to come. A thread that took theirs at once would use up its share of a busy CPU
  // and leave them theirs.
  int next = 0;
  spin_until(kFewLooks, [&] {
    while (next < loop.pieces && static_cast<std::int32_t>(loop.number - taken_[next]) <= 0) ++next;
    return next == loop.pieces;
  });
  for (int i = 1; i < loop.pieces; ++i) {
    const int piece = (first + i) % loop.pieces;
    // If the thread that should have begun it was not asleep, another process has its core.
    const bool awake =
        first == 0 && piece <= static_cast<int>(workers_.size()) && !workers_[piece - 1]->sleeps;
    if (take(loop, piece) && awake) busy_until_ = Clock::now() + kBusyFor;
  }
}

int ThreadTeam::looks() const {
  return Clock::now() < busy_until_.load() ? kFewLooks : kLooks;
}

void ThreadTeam::wait_until_done() {
  if (spin_until(looks(), [this] { return unfinished_ == 0; })) return;
  // Asleep, it leaves its core to the threads that have the last pieces.
  caller_sleeps_ = true;
  for (std::uint32_t left = unfinished_; left != 0; left = unfinished_) sleep_while(unfinished_, left);
  caller_sleeps_ = false;
}

void ThreadTeam::work(Worker& worker, int first) {
  std::uint32_t heard = 0;
  while (!ends_) {
    const std::uint32_t rung = worker.bell;
    if (rung != heard) {
      heard = rung;
      // If it comes late, this may be a later loop, which has no piece for it.
      if (const Loop loop = loop_; first < loop.pieces) take_pieces(loop, first);
    } else if (!spin_until(looks(), [&] { return worker.bell != rung || rests_; }) || rests_) {
      worker.sleeps = true;
      sleep_while(worker.bell, rung);
      worker.sleeps = false;
    }
  }
}

}  // namespace athanor::cpu
