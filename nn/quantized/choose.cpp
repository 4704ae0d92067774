#include "nn/quantized/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "nn/quantized/quantized_network.h"
#include "tensor/base/error.h"

namespace athanor::nn {
namespace {

constexpr std::int64_t kLevels = 256;

/// Of numbers.
struct Range {
  double low, high;
};

Range percentile_range(const ObservedValue& value, double percentile) {
  const std::vector<std::int64_t>& counts = value.histogram.counts();
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const bool two_sided = value.min < 0 && value.max > 0;
  const double most = total * (100 - percentile) / 100 / (two_sided ? 2 : 1);  // numbers left out at an end
  const auto count = [&](std::int64_t bin) {
    return static_cast<double>(counts[static_cast<std::size_t>(bin)]);
  };
  std::int64_t first = 0, end = std::ssize(counts);
  double outside = 0;
  while (value.max > 0 && end - first > 1 && outside + count(end - 1) <= most) outside += count(--end);
  outside = 0;
  while (value.min < 0 && end - first > 1 && outside + count(first) <= most) outside += count(first++);
  return {std::max<double>(value.min, value.histogram.edge(first)),
          std::min<double>(value.max, value.histogram.edge(end))};
}

/// The bins of a histogram and those up to zero, wider ones if these are too many: bin i counts numbers in
/// [first + i, first + i + 1) widths.
class Bins {
 public:
  explicit Bins(const Histogram& histogram)
      : counts_(histogram.counts().begin(), histogram.counts().end()),
        width_(histogram.width()),
        first_(std::llround(histogram.edge(0) / width_)) {
    while (std::max<std::int64_t>(end(), 0) - std::min<std::int64_t>(first_, 0) > Histogram::kBins) widen();
    if (first_ > 0) counts_.insert(counts_.begin(), static_cast<std::size_t>(std::exchange(first_, 0)), 0.0);
    if (end() < 0) counts_.resize(counts_.size() + static_cast<std::size_t>(-end()));
  }

  std::int64_t first() const { return first_; }
  std::int64_t end() const { return first_ + std::ssize(counts_); }
  double width() const { return width_; }
  double operator[](std::int64_t bin) const { return counts_[static_cast<std::size_t>(bin - first_)]; }
  /// Of the bins [from, to).
  double sum(std::int64_t from, std::int64_t to) const {
    return std::accumulate(counts_.begin() + (from - first_), counts_.begin() + (to - first_), 0.0);
  }

  /// Gives the bin of zero the mean of those beside it, if there are any.
  void level_zero() {
    if (first_ > 0 || end() <= 0) return;
    const bool below = first_<0, above = end()> 1;
    if (!below && !above) return;
    counts_[static_cast<std::size_t>(-first_)] =
        ((below ? (*this)[-1] : 0) + (above ? (*this)[1] : 0)) / (below + above);
  }

 private:
  /// Adds up every two bins.
  void widen() {
    const std::int64_t first = first_ >> 1;
    std::vector<double> wide(static_cast<std::size_t>(((end() - 1) >> 1) - first + 1));
    for (std::int64_t bin = first_; bin < end(); ++bin)
      wide[static_cast<std::size_t>((bin >> 1) - first)] += (*this)[bin];
    counts_ = std::move(wide);
    first_ = first;
    width_ *= 2;
  }

  std::vector<double> counts_;
  double width_;
  std::int64_t first_;
};

/// D(P, Q) of the range of bins [first, end), in nats. Infinite if one is empty but for the numbers beyond
/// it.
double divergence(const Bins& bins, std::int64_t first, std::int64_t end) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double inside = bins.sum(first, end);
  const double below = bins.sum(bins.first(), first), above = bins.sum(end, bins.end());
  if (inside == 0) return kInfinite;
  double sum = 0;
  for (std::int64_t level = 0; level < kLevels; ++level) {
    const std::int64_t from = first + level * (end - first) / kLevels;
    const std::int64_t to = first + (level + 1) * (end - first) / kLevels;
    std::int64_t filled = 0;
    for (std::int64_t bin = from; bin < to; ++bin) filled += bins[bin] > 0;
    const double q = bins.sum(from, to) / static_cast<double>(filled) / inside;
    for (std::int64_t bin = from; bin < to; ++bin) {
      const double beyond = (bin == first ? below : 0) + (bin + 1 == end ? above : 0);
      const double p = (bins[bin] + beyond) / (below + inside + above);
      if (p == 0) continue;
      if (bins[bin] == 0) return kInfinite;
      sum += p * std::log(p / q);
    }
  }
  return sum;
}

Range entropy_range(const ObservedValue& value) {
  Bins bins(value.histogram);
  bins.level_zero();
  std::int64_t first = bins.first(), end = bins.end();
  double least = divergence(bins, first, end);
  for (std::int64_t t = std::max(-bins.first(), bins.end()) - 1; t > 0; --t) {
    const std::int64_t from = std::max(bins.first(), -t), to = std::min(bins.end(), t);
    if (to - from < kLevels) break;
    if (const double here = divergence(bins, from, to); here < least) {
      least = here;
      first = from;
      end = to;
    }
  }
  return {std::max<double>(value.min, static_cast<double>(first) * bins.width()),
          std::min<double>(value.max, static_cast<double>(end) * bins.width())};
}

}  // namespace

const char* name_of(QuantizerMethod method) {
  switch (method) {
    case QuantizerMethod::min_max: return "minmax";
    case QuantizerMethod::percentile: return "percentile";
    case QuantizerMethod::entropy: return "entropy";
  }
  return "";
}

std::optional<QuantizerMethod> quantizer_method_named(std::string_view name) {
  for (const QuantizerMethod method : kQuantizerMethods)
    if (name == name_of(method)) return method;
  return std::nullopt;
}

Quantizer choose_quantizer(const ObservedValue& value, QuantizerMethod method, double percentile) {
  ATH_CHECK(percentile > 0 && percentile <= 100, "quantizer: a percentile must be in (0, 100], but is {}",
            percentile);
  if (method == QuantizerMethod::min_max || value.histogram.counts().empty()) return min_max_quantizer(value);
  const Range range =
      method == QuantizerMethod::percentile ? percentile_range(value, percentile) : entropy_range(value);
  ObservedValue covered{.name = value.name, .histogram = {}};
  covered.min = static_cast<float>(range.low);
  covered.max = static_cast<float>(range.high);
  return min_max_quantizer(covered);
}

}  // namespace athanor::nn
