#include "nn/quantized/calibration.h"

#include <algorithm>
#include <cmath>

#include "autograd/detail/dense.h"
#include "nn/quantized/detail/build.h"
#include "nn/quantized/detail/executor.h"
#include "nn/quantized/detail/index.h"

namespace athanor::nn {

using quantized::at;
using quantized::Graph;
using quantized::Op;
using quantized::OpKind;

// Histogram ------------------------------------------------------------------------------------------------

namespace {

std::int64_t bin_of(double number, double width) {
  return static_cast<std::int64_t>(std::floor(number / width));
}

/// floor(bin / 2^shift)
std::int64_t halved(std::int64_t bin, int shift) {
  return shift > 62 ? (bin < 0 ? -1 : 0) : bin >> shift;
}

/// How often the narrower width doubles to the wider one.
int doublings(double narrow, double wide) {
  return std::ilogb(wide) - std::ilogb(narrow);
}

}  // namespace

/// Makes bins at least `width` wide that hold what was counted, and bins [first, last] of that width.
void Histogram::cover(std::int64_t first, std::int64_t last, double width) {
  if (counts_.empty()) {
    first_ = first;
    width_ = width;
    counts_.resize(static_cast<std::size_t>(last - first + 1));
    return;
  }
  const double wider = std::max(width, width_);
  int own = doublings(width_, wider), others = doublings(width, wider);
  const std::int64_t end = first_ + std::ssize(counts_) - 1;
  const auto from = [&] { return std::min(halved(first_, own), halved(first, others)); };
  const auto to = [&] { return std::max(halved(end, own), halved(last, others)); };
  while (to() - from() >= kBins) ++own, ++others;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(to() - from() + 1));
  for (std::int64_t i = 0; i < std::ssize(counts_); ++i)
    counts[static_cast<std::size_t>(halved(first_ + i, own) - from())] +=
        counts_[static_cast<std::size_t>(i)];
  width_ = std::ldexp(width_, own);
  first_ = from();
  counts_ = std::move(counts);
}

void Histogram::add(std::span<const float> numbers, float min, float max) {
  if (numbers.empty()) return;
  // Of the largest number, half of the bins at least.
  const double largest = std::max(std::abs(static_cast<double>(min)), std::abs(static_cast<double>(max)));
  constexpr int kLeast = -100;  // what is smaller is one bin
  const int exponent = largest == 0 ? kLeast : std::max(std::ilogb(largest) + 1, kLeast);
  double width = std::ldexp(1.0, exponent - 11);
  while (bin_of(max, width) - bin_of(min, width) >= kBins) width *= 2;
  cover(bin_of(min, width), bin_of(max, width), width);
  const double scale = 1 / width_;  // exact
  for (const float number : numbers)
    ++counts_[static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(number * scale)) - first_)];
}

void Histogram::add(const Histogram& other) {
  if (other.counts_.empty()) return;
  cover(other.first_, other.first_ + std::ssize(other.counts_) - 1, other.width_);
  const int shift = doublings(other.width_, width_);
  for (std::int64_t i = 0; i < std::ssize(other.counts_); ++i)
    counts_[static_cast<std::size_t>(halved(other.first_ + i, shift) - first_)] +=
        other.counts_[static_cast<std::size_t>(i)];
}

// Calibration ----------------------------------------------------------------------------------------------

namespace {

/// Adds the values of x to what was seen.
void add_values(const Tensor& x, ObservedValue& to) {
  const float* const numbers = x.data<float>();
  const std::int64_t count = x.numel(), channels = x.rank() ? x.dim(-1) : 1;
  if (count == 0) return;
  const auto [low, high] = std::minmax_element(numbers, numbers + count);
  const float min = *low, max = *high;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) finite = finite && std::isfinite(numbers[i]);
  ATH_CHECK(finite,
            "calibration: values must be finite, but the result of '{}' holds an infinite value or NaN",
            to.name);
  const auto seen = static_cast<double>(std::ssize(to.channel_means) == channels ? to.rows : 0);
  std::vector<double> sums(static_cast<std::size_t>(channels));
  for (std::int64_t i = 0; i < count; i += channels) {
    for (std::int64_t c = 0; c < channels; ++c)
      sums[static_cast<std::size_t>(c)] += static_cast<double>(numbers[i + c]);
  }
  const auto rows = static_cast<double>(count / channels);
  to.channel_means.resize(static_cast<std::size_t>(channels));
  for (std::size_t c = 0; c < sums.size(); ++c)
    to.channel_means[c] = (to.channel_means[c] * seen + sums[c]) / (seen + rows);
  to.min = to.rows == 0 ? min : std::min(to.min, min);
  to.max = to.rows == 0 ? max : std::max(to.max, max);
  to.rows += count / channels;
  to.histogram.add({numbers, static_cast<std::size_t>(count)}, min, max);
}

}  // namespace

struct Calibration::Impl {
  Shape sample;
  Graph graph;
  quantized::Executor executor;
  std::vector<ObservedValue> values;
  std::vector<int> observed;  // places in `values` of the graph's values; -1: not observed
  std::int64_t images = 0;

  Impl(Module& network, const Shape& shape)
      : sample(shape),
        graph(quantized::float_graph(network, shape)),
        executor(graph),
        observed(graph.values.size(), -1) {
    std::vector<bool> wanted(graph.values.size());
    for (const Op& op : graph.ops) {
      if (op.kind != OpKind::real) wanted[at(op.output)] = true;
      if (op.kind == OpKind::product) wanted[at(op.inputs[0])] = true;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      observed[i] = static_cast<int>(values.size());
      values.push_back({.name = graph.values[i].name});
    }
  }

  void check(const Tensor& x) const {
    const Shape& one = graph.values[at(graph.input)].shape.one;
    bool fits = x.defined() && x.dtype() == DType::f32 && x.device().is_cpu() && x.rank() == one.rank() &&
                x.dim(0) > 0;
    for (int axis = 1; fits && axis < one.rank(); ++axis) fits = x.dim(axis) == one[axis];
    ATH_CHECK(fits, "calibration: images must be f32 [N, ...] of {} on the CPU, but got {}", sample,
              x.defined() ? fmt::format("{} {} on {}", x.dtype(), x.shape(), x.device().str())
                          : "an undefined tensor");
  }
};

Calibration::Calibration(Module& network, const Shape& sample)
    : impl_(std::make_unique<Impl>(network, sample)) {}

Calibration::~Calibration() = default;

Tensor Calibration::observe(const Tensor& images) {
  impl_->check(images);
  const quantized::Watch watch = [this](int value, const Tensor& x) {
    const int place = impl_->observed[at(value)];
    if (place >= 0) add_values(dense(x), impl_->values[at(place)]);
  };
  const Tensor y = impl_->executor.run(images, &watch);
  impl_->images += images.dim(0);
  return y;
}

Tensor Calibration::forward(const Tensor& images) const {
  impl_->check(images);
  return impl_->executor.run(images);
}

std::int64_t Calibration::images() const {
  return impl_->images;
}
const std::vector<ObservedValue>& Calibration::values() const {
  return impl_->values;
}
const Graph& Calibration::graph() const {
  return impl_->graph;
}
const Shape& Calibration::sample() const {
  return impl_->sample;
}

std::vector<std::string> Calibration::products() const {
  std::vector<std::string> names;
  for (const Op& op : impl_->graph.ops) {
    if (op.kind == OpKind::product) names.push_back(op.name);
  }
  return names;
}

}  // namespace athanor::nn
