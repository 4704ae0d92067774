#include "data/convert.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

/// Samples read ahead by several threads and taken in order. Sample i goes to slot i % slots, so that nobody
/// runs further ahead than there are slots.
class ReadAhead {
 public:
  ReadAhead(const SampleStore& store, const std::vector<std::int64_t>& order, const ConvertOptions& options)
      : store_(store),
        order_(order),
        options_(options),
        slots_(static_cast<std::size_t>(options.threads) * 4) {
    for (int i = 0; i < options.threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  /// Sample `i` of the order; called for each in turn. Valid until the next call.
  const StoredSample& take(std::size_t i) {
    std::unique_lock lock(mutex_);
    taken_ = i;
    changed_.notify_all();
    Slot& slot = slots_[i % slots_.size()];
    changed_.wait(lock, [&] { return slot.ready; });
    slot.ready = false;
    if (slot.error) std::rethrow_exception(slot.error);
    return slot.sample;
  }

 private:
  struct Slot {
    std::vector<std::byte> scratch, changed;
    StoredSample sample;
    std::exception_ptr error;
    bool ready = false;
  };

  void fetch(std::int64_t index, Slot& slot, const SampleChange& change) const {
    slot.sample = store_.fetch(index, slot.scratch);
    if (!change) return;
    try {
      slot.sample = change(slot.sample, slot.changed);
    } catch (const IoError& error) {
      detail::fail<IoError>("{}: {}", store_.where(index), error.what());
    }
  }

  void work(const std::stop_token& stop) {
    const SampleChange change = options_.make_change ? options_.make_change() : SampleChange();
    std::unique_lock lock(mutex_);
    while (true) {
      // The slot of the sample that was taken last is still in use.
      const bool go =
          changed_.wait(lock, stop, [&] { return next_ == order_.size() || next_ < taken_ + slots_.size(); });
      if (!go || stop.stop_requested() || next_ == order_.size()) return;
      const std::size_t i = next_++;
      Slot& slot = slots_[i % slots_.size()];
      lock.unlock();
      try {
        fetch(order_[i], slot, change);
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      slot.ready = true;
      changed_.notify_all();
    }
  }

  const SampleStore& store_;
  const std::vector<std::int64_t>& order_;
  const ConvertOptions& options_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t next_ = 0, taken_ = 0;
  std::vector<std::jthread> threads_;  // last, so that they end first
};

std::vector<std::int64_t> order_of(const SampleStore& store, const ConvertOptions& options) {
  std::vector<std::int64_t> order;
  if (options.shuffle_seed) {
    order =
        philox_permutation(store.size(), {*options.shuffle_seed, random_stream(RandomPurpose::order, 0, 0)});
  } else {
    order.resize(static_cast<std::size_t>(store.size()));
    std::iota(order.begin(), order.end(), std::int64_t{0});
  }
  if (options.limit > 0 && options.limit < store.size())
    order.resize(static_cast<std::size_t>(options.limit));
  return order;
}

}  // namespace

bool convert(const SampleStore& from, SampleWriter& to, const ConvertOptions& options) {
  ATH_CHECK(options.threads > 0 && options.threads <= 1024,
            "convert: threads must be in [1, 1024], but got {}", options.threads);
  ATH_CHECK(options.limit >= 0, "convert: limit must not be negative, but got {}", options.limit);
  const std::vector<std::int64_t> order = order_of(from, options);
  ReadAhead samples(from, order, options);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const StoredSample& sample = samples.take(i);
    to.add(sample);
    bytes += std::ssize(sample.bytes);
    if (options.progress && !options.progress(static_cast<std::int64_t>(i) + 1, bytes)) return false;
  }
  return true;
}

}  // namespace athanor
