#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "simt/emulator/fiber.h"

namespace simt {

inline constexpr std::size_t kMaxThreads = 1024;  // of a block
// Only pages that are touched cost memory. Kernels with sanitizers, and translated from PTX, have large
// frames.
inline constexpr std::size_t kStackBytes = 256 * 1024;

/// A fiber, and the thread of the block that it runs.
struct Worker {
  explicit Worker(StackRegion& stacks) : fiber(stacks.take(), stacks.stack_bytes()) {}
  Fiber fiber;
  unsigned thread = 0;
};

/// The fibers on which threads run, as many as wait at once.
class Workers {
 public:
  void begin_launch() {
    idle_.clear();
    used_ = 0;
  }
  /// One that is idle, or another, which begins with `entry`.
  Worker* take(Fiber::Entry entry) {
    if (!idle_.empty()) {
      Worker* const worker = idle_.back();
      idle_.pop_back();
      return worker;
    }
    if (used_ == all_.size()) {
      all_.push_back(std::make_unique<Worker>(stacks_));
      idle_.reserve(all_.size());
    }
    Worker* const worker = all_[used_++].get();
    worker->fiber.restart(entry);
    return worker;
  }
  void give_back(Worker* worker) { idle_.push_back(worker); }

  /// Null: the host runs.
  Worker* current() const { return current_; }
  void switch_to(Worker* next) {
    Worker* const from = std::exchange(current_, next);
    Fiber::switch_to(from ? from->fiber : host_, next ? next->fiber : host_);
  }
  const StackRegion& stacks() const { return stacks_; }

 private:
  StackRegion stacks_{kMaxThreads, kStackBytes};
  std::vector<std::unique_ptr<Worker>> all_;
  std::size_t used_ = 0;  // in this launch
  std::vector<Worker*> idle_;
  Fiber host_;
  Worker* current_ = nullptr;
};

/// Those that can go on, first come, first served. Room for all threads of a block.
class ReadyWorkers {
 public:
  void clear(std::size_t threads) {
    ring_.resize(threads + 1);
    first_ = end_ = 0;
  }
  bool empty() const { return first_ == end_; }
  void push(Worker* worker) {
    ring_[end_] = worker;
    if (++end_ == ring_.size()) end_ = 0;
  }
  Worker* pop() {
    Worker* const worker = ring_[first_];
    if (++first_ == ring_.size()) first_ = 0;
    return worker;
  }

 private:
  std::vector<Worker*> ring_;
  std::size_t first_ = 0, end_ = 0;
};

}  // namespace simt
