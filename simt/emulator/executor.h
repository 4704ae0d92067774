#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "simt/emulator/kernel_call.h"
#include "simt/emulator/options.h"
#include "simt/emulator/workers.h"

namespace simt {

/// A launch whose time has come.
struct Grid {
  const char* name;
  const KernelCall* call;
  dim3 grid, block;
  std::size_t shared_bytes;
};

/// A kernel broke a rule of CUDA; what() is the whole diagnosis, with kernel, block, threads and lines.
class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs every thread of the grid. Throws KernelFault. One at a time: the caller holds the runtime's lock.
void run_grid(const Grid& grid);

/// What has been run so far.
struct ExecutorStats {
  std::uint64_t launches = 0, block_barriers = 0;
};
const ExecutorStats& executor_stats();

/// Thrown by what a thread calls: the whole diagnosis.
struct Refusal {
  std::string text;
};

/// Dynamic shared memory, which blocks have one after the other.
class DynamicShared {
 public:
  void resize(std::size_t bytes);

  void* data() const { return data_; }  ///< null where there is none
  std::size_t bytes() const { return bytes_; }
  bool contains(const void* address) const {
    return data_ && address >= data_ && address < static_cast<char*>(data_) + bytes_;
  }

 private:
  std::unique_ptr<void, decltype(&std::free)> block_{nullptr, &std::free};
  std::size_t capacity_ = 0, bytes_ = 0;
  void* data_ = nullptr;
};

/// The order of the blocks of a grid.
class BlockSequence {
 public:
  void begin(const dim3& grid, Order::Kind order, Random& random);
  std::uint64_t size() const { return size_; }
  uint3 at(std::uint64_t position) const;

 private:
  dim3 grid_;
  std::uint64_t size_ = 0, stride_ = 1, offset_ = 0;
};

/// Runs the threads of one block after the other: which of them runs, until when. What they do together is
/// waiting.h's.
class Executor {
 public:
  void run(const Grid& grid);

  /// The running thread gives way until somebody releases it.
  void wait();
  void release(unsigned thread);
  [[noreturn]] void fail(std::string&& what);
  /// What follows is done for that thread, though another runs; null: no longer.
  void act_for(const unsigned* thread) { acting_ = thread ? static_cast<int>(*thread) : -1; }
  bool running() const { return workers_.current() != nullptr; }
  /// "kernel k, block (0,0,0): thread (1,0,0)"
  std::string in_thread() const;

  // Threads of the block, by number.
  unsigned threads() const { return count_; }
  unsigned current_thread() const { return workers_.current()->thread; }
  bool has_left(unsigned thread) const { return threads_[thread].done; }
  unsigned left() const { return done_; }
  std::string name(unsigned thread) const;
  /// In which they run, if nothing else says so.
  const std::vector<unsigned>& order() const { return order_; }
  void reorder();
  Random& random() { return random_; }

  /// Who does the asynchronous work of the block that runs.
  const async::BlockWork& block_work() const;
  const DynamicShared& shared() const { return shared_; }
  bool on_a_stack(const void* address) const {
    return address >= workers_.stacks().begin() && address < workers_.stacks().end();
  }
  ExecutorStats stats;

 private:
  struct Thread {
    Worker* worker;
    uint3 index;
    bool done;
  };

  static void work();

  void prepare(const Grid& grid);
  void run_block();
  void begin_thread(unsigned thread);
  Worker* next_worker();
  bool run_one_asynchronous();
  std::string in_block(const std::string& what) const;

  const Grid* grid_ = nullptr;
  BlockSequence blocks_;
  DynamicShared shared_;
  unsigned count_ = 0;  // threads of a block
  std::vector<Thread> threads_;
  std::vector<unsigned> order_;
  unsigned begun_ = 0, done_ = 0;
  Workers workers_;
  ReadyWorkers ready_;
  int acting_ = -1;
  Random random_{1};
  std::string fault_;
};

Executor& executor();

}  // namespace simt
