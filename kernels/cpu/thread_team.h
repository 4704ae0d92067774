#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace athanor::cpu {

/// The threads that run loops (kernels/cpu/parallel.h), fixed at start-up. oneDNN always has OpenMP's; unless
/// the environment (OMP_WAIT_POLICY) told these to wait passively, they spin for milliseconds after its work,
/// and would keep others from their cores: then they run loops as well.
enum class LoopThreads : std::uint8_t { none, openmp, own };
LoopThreads loop_threads();

/// Threads that share the pieces of a loop with their caller. The caller waits for pieces, not for threads:
/// those of a thread that another process keeps from running are taken by one that runs. After a loop,
/// threads look for the next one for longer than waking them costs, then sleep; if the CPU is busy with other
/// processes, they look for some microseconds. They are started when first needed.
class ThreadTeam {
 public:
  static constexpr int kMaxPieces = 1024;

  ThreadTeam();
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Calls f(0), ..., f(pieces - 1), each once, on this thread and up to pieces - 1 others, and returns when
  /// all have returned. Thread i prefers piece i, whose data may still be in its core's cache. Within a piece
  /// of any team, calls them in order on its thread. f must not throw. Only one thread at a time may call.
  template <class F> void run(int pieces, const F& f) {
    run(
        pieces, [](const void* data, int piece) { (*static_cast<const F*>(data))(piece); }, &f);
  }

  /// Sends the threads to sleep until the next loop: those of another library come first. Only the thread
  /// that may call run() may call it.
  void rest() { rests_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  using Call = void (*)(const void* data, int piece);

  /// A loop's number and its pieces, read in one access.
  struct alignas(8) Loop {
    std::uint32_t number;
    std::int32_t pieces;
  };
  /// In a cache line of its own, at which the thread looks while it waits.
  struct alignas(64) Worker {
    std::atomic<std::uint32_t> bell = 0;  ///< rung for a loop that has a piece for it
    std::atomic<bool> sleeps = false;
    std::thread thread;
  };

  void run(int pieces, Call call, const void* data);
  void start_workers(int count);
  void ring(Worker& worker);
  void work(Worker& worker, int first);
  bool take(Loop loop, int piece);
  void take_pieces(Loop loop, int first);
  void wait_until_done();
  int looks() const;

  Call call_ = nullptr;
  const void* data_ = nullptr;
  std::atomic<Loop> loop_ = Loop{0, 0};
  std::atomic<std::uint32_t> unfinished_ = 0;  ///< pieces
  std::atomic<bool> caller_sleeps_ = false;
  std::atomic<bool> rests_ = false, ends_ = false;
  std::atomic<Clock::time_point> busy_until_ = Clock::time_point{};
  std::array<std::atomic<std::uint32_t>, kMaxPieces> taken_{};  ///< by piece: the last loop's number
  std::vector<std::unique_ptr<Worker>> workers_;
  int most_workers_ = kMaxPieces;
};

}  // namespace athanor::cpu
