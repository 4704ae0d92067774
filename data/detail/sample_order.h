#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"

namespace athanor::detail {

/// The sample order of every epoch: a function of (seed, epoch) only. Caches some epochs, 8 bytes per sample,
/// because prefetching readers are in a later epoch than others.
class SampleOrder {
 public:
  /// `epochs_in_use`: at once.
  SampleOrder(std::int64_t samples, const LoaderOptions& options, std::int64_t epochs_in_use);

  /// The sample at `position` of `epoch`. Thread-safe; the first call for an epoch draws it.
  std::int64_t at(std::int64_t epoch, std::int64_t position) {
    return shuffle_ ? drawn(epoch).order[static_cast<std::size_t>(position)] : position;
  }
  /// Draws `epoch` in advance.
  void prepare(std::int64_t epoch) {
    if (shuffle_) drawn(epoch);
  }
  /// Whether announce() has any effect.
  bool announces() const { return by_pages_; }
  /// When a reader at `position` enters another window, tells `data` which pages come next. `before` is its
  /// previous position in this epoch, -1: none. Has no effect in full random order.
  void announce(const Dataset& data, std::int64_t epoch, std::int64_t before, std::int64_t position);

 private:
  struct Epoch {
    std::atomic<std::int64_t> number{-1};
    std::vector<std::int64_t> order, pages;
    std::vector<std::int64_t> windows;  // start of each
  };

  Epoch& drawn(std::int64_t epoch) {
    Epoch& drawn_epoch = epochs_[static_cast<std::size_t>(epoch) % count_];
    if (drawn_epoch.number.load(std::memory_order_acquire) != epoch) draw(drawn_epoch, epoch);
    return drawn_epoch;
  }
  void draw(Epoch& drawn_epoch, std::int64_t epoch);
  void draw_weighted(Epoch& drawn_epoch, std::int64_t epoch) const;
  void draw_pages(Epoch& drawn_epoch, std::int64_t epoch) const;
  void announce_window(const Dataset& data, std::int64_t epoch, std::int64_t window);
  std::int64_t windows() const { return (pages() + window_pages_ - 1) / window_pages_; }
  std::int64_t pages() const { return (samples_ + page_samples_ - 1) / page_samples_; }
  std::int64_t window_of(const Epoch& drawn_epoch, std::int64_t position) const;

  std::int64_t samples_, page_samples_, window_pages_;
  bool shuffle_, by_pages_;
  std::uint64_t seed_;
  std::vector<double> sums_;  // of the weights up to each sample; empty: no weights
  std::size_t count_;
  std::unique_ptr<Epoch[]> epochs_;
  std::mutex mutex_;
};

}  // namespace athanor::detail
