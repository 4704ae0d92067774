#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "data/dataset.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor::test {

/// A door that readers wait at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    moved_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    moved_.notify_all();
    moved_.wait(lock, [&] { return open_; });
  }
  /// Until somebody waits at it.
  void wait_for_someone(int count = 1) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  bool open_ = false;
  int waiting_ = 0;
};

/// Images that are a function of index and epoch, in no memory; and what a test wants to happen when they are
/// read: `before` is called first, with the index.
class MadeUpSet final : public ImageDataset {
 public:
  explicit MadeUpSet(std::int64_t size, const ImageSpec& spec = {3, 5, 3, 7}) : size_(size), spec_(spec) {}

  std::int64_t size() const override { return size_; }
  const ImageSpec& spec() const override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    return read_in_epoch(index, -1, pixels);
  }
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override {
    reads.fetch_add(1);
    {
      const std::lock_guard lock(mutex_);
      threads_.insert(gettid());
      if (epoch > latest_) latest_ = epoch;
    }
    if (before) before(index);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(
          philox_word({static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(epoch + 1)}, i));
    }
    return label ? label(index) : index % spec_.classes;
  }
  std::string where(std::int64_t index) const override {
    return "made-up/" + std::to_string(index) + ".img, offset " + std::to_string(100 * index);
  }
  std::vector<Unused> unused() const override { return account; }
  void will_need(std::int64_t first, std::int64_t count) const override {
    if (on_will_need) on_will_need(first, count);
  }

  /// Threads that have read.
  std::size_t threads() const {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }
  std::int64_t latest_epoch() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

  std::function<void(std::int64_t)> before;
  std::function<std::int64_t(std::int64_t)> label;
  std::function<void(std::int64_t, std::int64_t)> on_will_need;
  std::vector<Unused> account = {};
  mutable std::atomic<std::int64_t> reads{0};

 private:
  std::int64_t size_;
  ImageSpec spec_;
  mutable std::mutex mutex_;
  mutable std::set<pid_t> threads_;  // std::thread::id may come again with the next thread
  mutable std::int64_t latest_ = -1;
};

/// Up to half a millisecond, another for each sample: rows are done in an order of their own.
inline void take_a_while(std::int64_t index) {
  std::this_thread::sleep_for(
      std::chrono::microseconds(philox_word({7, 7}, static_cast<std::uint64_t>(index)) % 500));
}

/// Waits until `condition` holds; false when it does not within two minutes, more than a busy machine takes.
inline bool becomes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace athanor::test
