#include "data/convert.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

/// Several threads read samples ahead, and the caller takes them in order. Threads work in runs of samples,
/// because contention would cost more than a small sample. Run i uses slot i % slots, so no thread gets
/// further ahead than there are slots.
class ReadAhead {
 public:
  ReadAhead(const Dataset& store, const std::vector<std::int64_t>& order, const ConvertOptions& options)
      : store_(store), order_(order), slots_(static_cast<std::size_t>(options.threads) * 4) {
    for (int i = 0; i < options.threads; ++i) {
      SampleChange change = options.make_change ? options.make_change() : SampleChange();
      threads_.emplace_back(
          [this, change = std::move(change)](const std::stop_token& stop) { work(stop, change); });
    }
  }

  /// The next sample of the order. Valid until the next call.
  const StoredSample& take() {
    if (!run_ || at_ == run_->count) next_run();
    // The samples before the failed one are valid.
    if (at_ == run_->good) std::rethrow_exception(run_->error);
    return run_->items[at_++].sample;
  }

 private:
  static constexpr std::int64_t kMaxInRun = 64, kRunBytes = std::int64_t{256} << 10;

  struct Item {
    std::vector<std::byte> scratch, changed;
    StoredSample sample;
  };
  struct Slot {
    std::vector<Item> items;
    std::size_t first = 0, count = 0, good = 0;  // in the order; number of samples, and how many were read
    std::exception_ptr error;
    bool ready = false;
  };

  void next_run() {
    std::unique_lock lock(mutex_);
    if (run_) {
      run_->ready = false;
      ++taken_;
      changed_.notify_all();
    }
    run_ = &slots_[taken_ % slots_.size()];
    at_ = 0;
    changed_.wait(lock, [&] { return run_->ready; });
  }

  void fetch(std::int64_t index, Item& item, const SampleChange& change) const {
    item.sample = store_.fetch(index, item.scratch);
    if (!change) return;
    try {
      item.sample = change(item.sample, item.changed);
    } catch (const IoError& error) {
      detail::fail<IoError>("{}: {}", store_.where(index), error.what());
    }
  }

  /// Returns the bytes of the run.
  std::int64_t fill(Slot& slot, const SampleChange& change) const {
    std::int64_t bytes = 0;
    slot.good = 0;
    try {
      if (slot.items.size() < slot.count) slot.items.resize(slot.count);
      for (; slot.good < slot.count; ++slot.good) {
        Item& item = slot.items[slot.good];
        fetch(order_[slot.first + slot.good], item, change);
        bytes += item.sample.stored_bytes();
      }
    } catch (...) {
      slot.error = std::current_exception();
    }
    return bytes;
  }

  void work(const std::stop_token& stop, const SampleChange& change) {
    std::unique_lock lock(mutex_);
    while (true) {
      // The slot of the caller's current run is still in use.
      const bool go = changed_.wait(
          lock, stop, [&] { return next_ == order_.size() || next_run_ < taken_ + slots_.size(); });
      if (!go || stop.stop_requested() || next_ == order_.size()) return;
      Slot& slot = slots_[next_run_++ % slots_.size()];
      slot.first = next_;
      slot.count = std::min(run_samples_, order_.size() - next_);
      next_ += slot.count;
      lock.unlock();
      const std::int64_t bytes = fill(slot, change);
      lock.lock();
      // The first runs have one sample. Their size determines the length of later runs.
      const std::int64_t each = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(slot.count), 1);
      run_samples_ = static_cast<std::size_t>(std::clamp<std::int64_t>(kRunBytes / each, 1, kMaxInRun));
      slot.ready = true;
      changed_.notify_all();
    }
  }

  const Dataset& store_;
  const std::vector<std::int64_t>& order_;
  std::vector<Slot> slots_;
  Slot* run_ = nullptr;  // the caller's run, and position in it
  std::size_t at_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t next_ = 0, next_run_ = 0, taken_ = 0, run_samples_ = 1;
  std::vector<std::jthread> threads_;  // last, so that they are destroyed first
};

std::vector<std::int64_t> order_of(const Dataset& store, const ConvertOptions& options) {
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

bool convert(const Dataset& from, SampleWriter& to, const ConvertOptions& options) {
  ATH_CHECK(options.threads > 0 && options.threads <= 1024,
            "convert: threads must be in [1, 1024], but got {}", options.threads);
  ATH_CHECK(options.limit >= 0, "convert: limit must not be negative, but got {}", options.limit);
  const std::vector<std::int64_t> order = order_of(from, options);
  ReadAhead samples(from, order, options);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const StoredSample& sample = samples.take();
    to.add(sample);
    bytes += sample.stored_bytes();
    if (options.progress && !options.progress(static_cast<std::int64_t>(i) + 1, bytes)) return false;
  }
  return true;
}

}  // namespace athanor
