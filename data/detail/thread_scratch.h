#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace athanor::detail {

/// Memory for a read, which a thread keeps from one to the next. A data set that reads through another one,
/// within its own read, has other memory than that one.
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
