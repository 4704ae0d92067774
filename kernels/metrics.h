#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/context.h"
#include "tensor/half.h"

namespace athanor {

/// How the values that steps give one metric become one number.
enum class MetricReduce : std::uint8_t { mean, sum, min, max };

}  // namespace athanor

namespace athanor::kernels {

/// How a loss counts in a total: as the nearest multiple of 2^-24, about the error that an f32 log-sum-exp
/// has anyway. Sums of such numbers are exact in f64 below 2^29, so that they are the same in any order.
template <class A> ATH_HD double counted_loss(A loss) {
  return std::rint(static_cast<double>(loss) * 0x1p24) * 0x1p-24;
}

/// Adds a batch to running totals on the device, so that nobody waits for its loss:
/// totals [3] f64 += {sum of losses, samples whose largest logit is the target's, N}.
/// losses [N] f32|f64, of each sample; logits [N, C] floating; target [N] i64 in [0, C); all dense. Of equal
/// logits the first counts as the largest; a row with a NaN counts as wrong, and so does, on a device, one
/// whose target is no class: the loss on the CPU has refused it. Losses count as counted_loss() says: totals
/// below 2^29 have the same bits however samples are divided into batches, and batches among ranks.
template <class Context>
void add_metrics(Context& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 const Tensor& totals);

/// Adds values (floating, dense, at least one) to a running total [2] f64 on the device, which begins as
/// zeros:
///
///     mean:      total += {their mean * weight, weight}
///     sum:       total += {their sum, 1}
///     min, max:  total = {the smallest (largest) so far, NaN where one is NaN; calls so far}
template <class Context>
void add_metric(Context& context, const Tensor& values, double weight, MetricReduce reduce,
                const Tensor& total);

/// What add_metric() makes of a total, given what its values come to: their sum, or their smallest or
/// largest.
ATH_HD inline void update_metric(double* total, double value, std::int64_t count, double weight,
                                 MetricReduce reduce) {
  const bool averages = reduce == MetricReduce::mean;
  if (averages) {
    total[0] += value / static_cast<double>(count) * weight;
  } else if (reduce == MetricReduce::sum || total[1] == 0) {
    total[0] += value;
  } else {
    const bool better = reduce == MetricReduce::min ? value < total[0] : value > total[0];
    if (better || value != value) total[0] = value;
  }
  total[1] += averages ? weight : 1;
}

/// Two values, or what earlier ones came to, as `reduce` joins them. A NaN stays.
struct JoinMetric {
  MetricReduce reduce;
  ATH_HD double operator()(double a, double b) const {
    if (reduce == MetricReduce::mean || reduce == MetricReduce::sum) return a + b;
    if (a != a || b != b) return a + b;
    return (reduce == MetricReduce::min) == (a < b) ? a : b;
  }
  /// What leaves the other as it is.
  ATH_HD double none() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return reduce == MetricReduce::min ? kInfinity : reduce == MetricReduce::max ? -kInfinity : 0;
  }
};

}  // namespace athanor::kernels
