#include "examples/serve/batcher.h"

#include <algorithm>
#include <utility>

#include "tensor/error.h"

namespace athanor::serve {

Batcher::Batcher(std::size_t max_batch, Clock::duration max_delay)
    : max_batch_(max_batch), max_delay_(max_delay) {
  ATH_CHECK(max_batch >= 1, "batcher: max_batch must be at least 1, but got {}", max_batch);
}

void Batcher::expect(std::size_t images) {
  const std::lock_guard lock(mutex_);
  expected_ += images;
}

void Batcher::put(Picture picture) {
  const std::lock_guard lock(mutex_);
  ATH_CHECK(expected_ > 0, "batcher: an image must be expected before it comes, but is not");
  --expected_;
  picture.decoded = Clock::now();
  waiting_.push_back(std::move(picture));
  changed_.notify_one();
}

void Batcher::drop() {
  const std::lock_guard lock(mutex_);
  ATH_CHECK(expected_ > 0, "batcher: an image must be expected before it is dropped, but is not");
  --expected_;
  changed_.notify_one();
}

/// How many of those that wait make the next batch; more than wait for one model never do.
std::size_t Batcher::batch_here() const {
  const std::size_t most = std::min(max_batch_, waiting_.size());
  std::size_t n = 0;
  while (n < most && waiting_[n].generation == waiting_.front().generation) ++n;
  return n;
}

std::vector<Picture> Batcher::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_.empty() || (closed_ && expected_ == 0); });
  if (waiting_.empty()) return {};
  const auto is_ready = [this] {
    const std::size_t n = batch_here();
    return n == max_batch_ || n < waiting_.size() || expected_ == 0 || closed_;
  };
  changed_.wait_until(lock, waiting_.front().decoded + max_delay_, is_ready);
  std::vector<Picture> batch;
  const std::size_t n = batch_here();
  batch.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return batch;
}

void Batcher::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace athanor::serve
