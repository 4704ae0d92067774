#include "examples/serve/batcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tensor/base/error.h"

namespace athanor::serve {

std::vector<std::size_t> batch_sizes(std::size_t max_batch) {
  ATH_CHECK(max_batch >= 1, "batcher: max_batch must be at least 1, but got {}", max_batch);
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size < max_batch; size *= 2) sizes.push_back(size);
  sizes.push_back(max_batch);
  return sizes;
}

Batcher::Batcher(std::size_t max_batch, Clock::duration max_delay)
    : sizes_(batch_sizes(max_batch)), max_delay_(max_delay) {}

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

/// The number of waiting images at the front, all for one model, that could be the next batch.
std::size_t Batcher::batch_here() const {
  const std::size_t most = std::min(sizes_.back(), waiting_.size());
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
    return n == sizes_.back() || n < waiting_.size() || expected_ == 0 || closed_;
  };
  changed_.wait_until(lock, waiting_.front().decoded + max_delay_, is_ready);
  std::vector<Picture> batch;
  const std::size_t n = *std::prev(std::upper_bound(sizes_.begin(), sizes_.end(), batch_here()));
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
