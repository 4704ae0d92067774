#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace athanor::detail {

/// A thread's reusable memory for reads. A data set that reads through another within its own read uses
/// separate memory.
class ThreadScratch {
 public:
  ThreadScratch() {
    if (idle().empty()) return;
    bytes_ = std::move(idle().back());
    idle().pop_back();
  }
  ~ThreadScratch() { idle().push_back(std::move(bytes_)); }
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  static std::vector<std::vector<std::byte>>& idle() {
    thread_local std::vector<std::vector<std::byte>> mine;
    return mine;
  }

  std::vector<std::byte> bytes_;
};

}  // namespace athanor::detail
