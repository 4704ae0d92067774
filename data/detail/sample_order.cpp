#include "data/detail/sample_order.h"

#include <algorithm>
#include <cmath>

#include "tensor/philox.h"

namespace athanor::detail {
namespace {

// Minor numbers of an epoch's streams of order: 0 is all samples, 1 is split()'s.
constexpr std::uint64_t kPages = 2, kWindows = 3;
constexpr std::int64_t kWindowStreams = 1 << 15;
constexpr std::uint64_t kDraws = 0xfffe;  // beyond the windows'; 0xffff is SampleReader's

RandomKey window_key(std::uint64_t seed, std::int64_t epoch, std::int64_t window) {
  // There are 2^16 minor numbers; sets with more windows continue with another seed.
  const auto far = static_cast<std::uint64_t>(window / kWindowStreams);
  const auto near = static_cast<std::uint64_t>(window % kWindowStreams);
  return {seed + far * 0x9E3779B97F4A7C15ull,
          random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch), kWindows + near)};
}

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, const LoaderOptions& options, std::int64_t epochs_in_use)
    : samples_(samples),
      page_samples_(std::min(options.page_samples, samples)),
      window_pages_(options.window_pages),
      shuffle_(options.shuffle),
      by_pages_(options.order == Order::page_random || !options.shuffle),
      seed_(options.seed),
      count_(static_cast<std::size_t>(epochs_in_use)),
      epochs_(std::make_unique<Epoch[]>(count_)) {
  if (!options.weights) return;
  sums_.reserve(options.weights->size());
  double sum = 0;
  for (const double weight : *options.weights) sums_.push_back(sum += weight);
}

void SampleOrder::draw(Epoch& drawn_epoch, std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (drawn_epoch.number.load(std::memory_order_relaxed) == epoch) return;
  if (by_pages_) {
    draw_pages(drawn_epoch, epoch);
  } else if (!sums_.empty()) {
    draw_weighted(drawn_epoch, epoch);
  } else {
    const auto stream = random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch));
    drawn_epoch.order = philox_permutation(samples_, {seed_, stream});
  }
  drawn_epoch.number.store(epoch, std::memory_order_release);
}

// Each position on its own: the sample in whose part of the sum of all weights a uniform number falls.
void SampleOrder::draw_weighted(Epoch& drawn_epoch, std::int64_t epoch) const {
  const RandomKey key{seed_, random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch), kDraws)};
  const double below_sum = std::nextafter(sums_.back(), 0.0);
  drawn_epoch.order.clear();
  drawn_epoch.order.reserve(sums_.size());
  for (std::int64_t i = 0; i < samples_; ++i) {
    const double uniform =
        static_cast<double>(philox_word64(key, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
    const auto drawn =
        std::upper_bound(sums_.begin(), sums_.end(), std::min(uniform * sums_.back(), below_sum));
    drawn_epoch.order.push_back(drawn - sums_.begin());
  }
}

// The pages in random order, then the samples within each window of pages that fit in memory.
void SampleOrder::draw_pages(Epoch& drawn_epoch, std::int64_t epoch) const {
  const auto stream = random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch), kPages);
  drawn_epoch.pages = philox_permutation(pages(), {seed_, stream});
  drawn_epoch.order.clear();
  drawn_epoch.order.reserve(static_cast<std::size_t>(samples_));
  drawn_epoch.windows.clear();
  std::vector<std::int64_t> together;
  for (std::int64_t window = 0; window < windows(); ++window) {
    together.clear();
    const std::int64_t first = window * window_pages_, last = std::min(first + window_pages_, pages());
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = drawn_epoch.pages[static_cast<std::size_t>(i)] * page_samples_;
      const std::int64_t end = std::min(begin + page_samples_, samples_);
      for (std::int64_t sample = begin; sample < end; ++sample) together.push_back(sample);
    }
    drawn_epoch.windows.push_back(std::ssize(drawn_epoch.order));
    for (const std::int64_t i : philox_permutation(std::ssize(together), window_key(seed_, epoch, window))) {
      drawn_epoch.order.push_back(together[static_cast<std::size_t>(i)]);
    }
  }
}

std::int64_t SampleOrder::window_of(const Epoch& drawn_epoch, std::int64_t position) const {
  if (!shuffle_) return position / (page_samples_ * window_pages_);
  return std::upper_bound(drawn_epoch.windows.begin(), drawn_epoch.windows.end(), position) -
         drawn_epoch.windows.begin() - 1;
}

void SampleOrder::announce(const Dataset& data, std::int64_t epoch, std::int64_t before,
                           std::int64_t position) {
  if (!by_pages_) return;
  const Epoch& drawn_epoch = shuffle_ ? drawn(epoch) : epochs_[0];
  const std::int64_t window = window_of(drawn_epoch, position);
  if (before >= 0 && window_of(drawn_epoch, before) == window) return;
  if (before < 0) announce_window(data, epoch, window);
  if (window + 1 < windows()) {
    announce_window(data, epoch, window + 1);
  } else {
    announce_window(data, epoch + 1, 0);
  }
}

void SampleOrder::announce_window(const Dataset& data, std::int64_t epoch, std::int64_t window) {
  const std::int64_t first = window * window_pages_, last = std::min(first + window_pages_, pages());
  const Epoch* drawn_epoch = shuffle_ ? &drawn(epoch) : nullptr;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t begin =
        (drawn_epoch ? drawn_epoch->pages[static_cast<std::size_t>(i)] : i) * page_samples_;
    try {
      data.will_need(begin, std::min(page_samples_, samples_ - begin));
    } catch (...) {
      // Only a hint, on a loader thread: errors will show when reading.
    }
  }
}

}  // namespace athanor::detail
