#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "tensor/tensor.h"

namespace athanor {

/// Where a metric adds: its sums [size()] f64, on the device.
struct MetricTotals {
  std::string_view name;
  const Tensor& sums;
};

/// A kind of measurement over many samples. Its state is a few sums on the device, which MetricSums owns,
/// copies, gathers and saves; the metric says how many they are, how those of two ranks are joined, and which
/// values they give. Besides this interface, it has
///
///     void add(const MetricTotals& to, ...) const;
///
/// which checks its arguments and queues their addition, without a wait. A new kind is a header and a source
/// here, their words in CMakeLists.txt, and in metric_sums.cpp an include and a line of metric_of(); tasks
/// log it by Step::add().
class Metric {
 public:
  /// The text is "mean", or with numbers "top:5" and "number_errors:200:3". A name has one kind in all of a
  /// run.
  struct Kind {
    std::string_view name;
    std::int64_t number = 0, columns = 0;
    bool operator==(const Kind&) const = default;
  };
  using Emit = std::function<void(std::string_view name, double value)>;

  virtual ~Metric() = default;
  virtual Kind kind() const = 0;
  /// The number of sums. Without samples all are 0.
  virtual std::int64_t size() const = 0;
  /// Whether its values are logged with each step, too. Otherwise its sums may be many.
  virtual bool in_steps() const { return true; }
  /// Calls emit() with each value that these sums give; none without samples. `name` is the metric's. Returns
  /// the number of samples, where known.
  virtual std::int64_t values(std::string_view name, std::span<const double> sums,
                              const Emit& emit) const = 0;
  /// Adds the sums of another rank.
  virtual void join(std::span<double> sums, std::span<const double> others) const {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += others[i];
  }
  /// Removes the part that was there before a step.
  virtual void subtract(std::span<double> sums, std::span<const double> before) const {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= before[i];
  }
};

}  // namespace athanor
