#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <simt/device.h>

#include "simt/executor.h"
#include "simt/fiber.h"
#include "simt/options.h"
#include "simt/race.h"

// The threads of a block, and who runs them: executor.cpp says how, waiting.cpp what they do together.

namespace simt {

#if defined(__SANITIZE_ADDRESS__) || defined(SIMT_RACE)
inline constexpr std::size_t kStackBytes = 256 * 1024;
#else
inline constexpr std::size_t kStackBytes = 64 * 1024;
#endif

enum class State : std::uint8_t { fresh, ready, at_barrier, at_collective, in_memory, done };

inline constexpr std::size_t kMaxThreads = 1024;  // of a block

struct Worker {
  explicit Worker(StackRegion& stacks) : fiber(stacks.take(), stacks.stack_bytes()) {}
  Fiber fiber;
  unsigned thread = 0;
};

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

/// An instruction that the lanes of a warp execute together, when all 32 have come.
struct WarpWork {
  const char* name;
  unsigned first_thread;  // lane i is thread first_thread + i
  Site site;
  const void* pc;  // race build: where the kernel goes on
  void* brought[32];

  template <class T> T& of(unsigned lane) const { return *static_cast<T*>(brought[lane]); }
};
using WarpFunction = void (*)(const WarpWork& warp);

struct Thread {
  State state;
  Together what;
  std::uint8_t bytes;
  unsigned mask, source;
  Worker* worker;
  const void* in;
  void* out;
  Site site;
  Calls calls;  // race build
  uint3 index;
  const char* instruction;  // for Together::instruction: its name, and who does it
  WarpFunction run;
  const void* barrier;  // in memory: which, and for which parity of its phase
  unsigned parity;
};

/// Thrown by what a thread calls: the whole diagnosis.
struct Refusal {
  std::string text;
};

struct Warp {
  unsigned arrived[32];  // by the lowest lane of the mask: which lanes have come
};

class Executor {
 public:
  void run(const Grid& grid);
  int barrier(bool predicate, const Site& site, const void* frame);
  void together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source, void* out,
                const Site& site, const void* frame);
  /// Waits until all 32 lanes are at this instruction; the last of them calls the function, once.
  void together(const char* instruction, WarpFunction function, void* brought, const Site& site,
                const void* frame);
  /// Waits for release_waiting() of that barrier, which also names the phase that is missing.
  void wait_in_memory(const void* barrier, unsigned parity, const Site& site);
  std::vector<unsigned> release_waiting(const void* barrier);
  /// The thread asks again and again: lets others run. Fails where nothing can come of it.
  void poll(const Site& site);
  void something_happened() { polls_ = 0; }
  /// What follows is done for that thread, though another runs; null: no longer.
  void act_for(const unsigned* thread) { acting_ = thread ? static_cast<int>(*thread) : -1; }
  [[noreturn]] void fail(std::string&& what);
#if defined(__SANITIZE_ADDRESS__)
  bool running() const {
    return current_ != nullptr;
  }
  std::string in_thread() const {
    return in_block("thread " + name(acting_ < 0 ? current_->thread : static_cast<unsigned>(acting_)));
  }
#endif

  Thread& self() {
    return threads_[current_->thread];
  }
  unsigned threads() const {  // of a block
    return count_;
  }
  unsigned current_thread() const {
    return current_->thread;
  }
  void* shared() {
    return shared_;
  }
  std::size_t shared_bytes() const {
    return grid_->shared_bytes;
  }
  bool is_shared(const void* address) const {  // dynamic
    return shared_ && address >= shared_ && address < static_cast<char*>(shared_) + grid_->shared_bytes;
  }
  bool on_a_stack(const void* address) const {
    return address >= stacks_.begin() && address < stacks_.end();
  }
  std::string name(unsigned thread) const;
  ExecutorStats stats;

 private:
  static void work();

  void prepare(const Grid& grid);
  void run_block();
  uint3 block_at(std::uint64_t position) const;
  void begin_thread(unsigned thread);
  void wait();
  void switch_to(Worker* next);  // null: the host
  Worker* next_worker();
  Worker* take_worker();
  void open_barrier();
  void gather(unsigned mask, const Site& site, const void* frame);
  void complete(unsigned warp, unsigned mask, const Thread& last);
  void run_instruction(unsigned warp, const Thread& last);
  void release(unsigned thread);
  void reorder();
  bool run_one_asynchronous();
  std::string stuck() const;
  std::string in_block(const std::string& what) const;

  const Grid* grid_ = nullptr;
  unsigned count_ = 0;  // threads of a block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  unsigned begun_ = 0, waiting_ = 0, done_ = 0;
  int votes_ = 0, vote_result_ = 0;

  std::vector<Worker*> ready_;  // a ring of count_ + 1
  std::size_t ready_first_ = 0, ready_end_ = 0;

  StackRegion stacks_{kMaxThreads, kStackBytes};
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t workers_used_ = 0;  // in this launch
  std::vector<Worker*> idle_;
  Fiber host_;
  Worker* current_ = nullptr;
  int acting_ = -1;
  std::uint64_t polls_ = 0;  // since something happened

  void* shared_ = nullptr;
  std::unique_ptr<void, decltype(&std::free)> shared_block_{nullptr, &std::free};
  std::size_t shared_capacity_ = 0;

  Random random_{1};
  std::uint64_t stride_ = 1, offset_ = 0;  // of the order of blocks
  std::string fault_;
};

Executor& executor();

/// "k.cu:20"
std::string place(const Site& site);

}  // namespace simt
