#include "examples/serve/batcher.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
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

Batcher::Batcher(std::size_t max_batch, Clock::duration max_delay, std::function<Clock::time_point()> now)
    : sizes_(batch_sizes(max_batch)), max_delay_(max_delay), clock_(std::move(now)) {}

void Batcher::expect(Picture::Key key, std::size_t images) {
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[key];
  if (queue.is_idle()) queue.used = std::max(queue.used, now_);
  queue.expected += images;
}

/// Called with the lock held.
Batcher::Queue& Batcher::expected(Picture::Key key, const char* what) {
  const auto at = queues_.find(key);
  ATH_CHECK(at != queues_.end() && at->second.expected > 0,
            "batcher: an image must be expected before it {}, but is not", what);
  return at->second;
}

void Batcher::put(Picture picture) {
  const std::lock_guard lock(mutex_);
  Queue& queue = expected(picture.key(), "comes");
  --queue.expected;
  picture.decoded = clock_();
  queue.waiting.push_back(std::move(picture));
  changed_.notify_one();
}

void Batcher::drop(Picture::Key key) {
  const std::lock_guard lock(mutex_);
  --expected(key, "is dropped").expected;
  changed_.notify_one();
}

bool Batcher::is_ready(const Queue& queue, Clock::time_point now) const {
  return !queue.waiting.empty() && (queue.waiting.size() >= sizes_.back() || queue.expected == 0 || closed_ ||
                                    now - queue.waiting.front().decoded >= max_delay_);
}

std::vector<Picture> Batcher::cut(Queue& queue) const {
  const std::size_t most = std::min(sizes_.back(), queue.waiting.size());
  const auto n =
      static_cast<std::ptrdiff_t>(*std::prev(std::upper_bound(sizes_.begin(), sizes_.end(), most)));
  const auto begin = queue.waiting.begin(), end = begin + n;
  std::vector<Picture> batch(std::make_move_iterator(begin), std::make_move_iterator(end));
  queue.waiting.erase(begin, end);
  return batch;
}

std::vector<Picture> Batcher::take() {
  std::unique_lock lock(mutex_);
  if (taken_ != Clock::time_point::max()) {
    Queue& queue = queues_[last_];  // may have been idle, and forgotten
    queue.used = std::max(queue.used, now_) + (clock_() - taken_);
    taken_ = Clock::time_point::max();
  }
  while (true) {
    const Clock::time_point now = clock_();
    std::optional<Clock::time_point> wake;
    auto next = queues_.end();
    for (auto at = queues_.begin(); at != queues_.end(); ++at) {
      const Queue& queue = at->second;
      if (is_ready(queue, now)) {
        if (next == queues_.end() || queue.used < next->second.used) next = at;
      } else if (!queue.waiting.empty()) {
        const Clock::time_point due = queue.waiting.front().decoded + max_delay_;
        wake = std::min(wake.value_or(due), due);
      }
    }
    if (next != queues_.end()) {
      now_ = std::max(now_, next->second.used);
      last_ = next->first;
      std::vector<Picture> batch = cut(next->second);
      std::erase_if(queues_,
                    [this](const auto& one) { return one.second.is_idle() && one.second.used <= now_; });
      taken_ = clock_();
      return batch;
    }
    const bool all_came =
        std::all_of(queues_.begin(), queues_.end(), [](const auto& one) { return one.second.is_idle(); });
    if (closed_ && all_came) return {};
    if (wake) {
      changed_.wait_until(lock, *wake);
    } else {
      changed_.wait(lock);
    }
  }
}

void Batcher::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace athanor::serve
