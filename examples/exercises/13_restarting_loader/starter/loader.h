#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

using Read = std::function<int(std::int64_t epoch, std::int64_t batch)>;

class Loader {
 public:
  Loader(Read read, std::int64_t batches, int threads, int slots)
      : read_(std::move(read)), batches_(batches), threads_(threads) {
    (void)slots;
  }

  /// The next batch; waits for it.
  int next() {
    if (taken_ % batches_ == 0) start_epoch();
    std::unique_lock lock(mutex_);
    const std::int64_t batch = taken_++ % batches_;
    ready_.wait(lock, [&] { return done_.contains(batch); });
    return done_.at(batch);
  }

 private:
  void start_epoch() {
    const std::int64_t epoch = taken_ / batches_;
    workers_.clear();  // waits for them
    done_.clear();
    for (int worker = 0; worker < threads_; ++worker) {
      workers_.emplace_back([this, epoch, worker] {
        for (std::int64_t batch = worker; batch < batches_; batch += threads_) {
          const int result = read_(epoch, batch);
          const std::lock_guard lock(mutex_);
          done_[batch] = result;
          ready_.notify_all();
        }
      });
    }
  }

  Read read_;
  std::int64_t batches_;
  int threads_;
  std::int64_t taken_ = 0;
  std::map<std::int64_t, int> done_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<std::jthread> workers_;
};
