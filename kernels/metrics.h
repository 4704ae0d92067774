#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/context.h"
#include "tensor/half.h"

namespace athanor {

/// How the values that steps give one metric become one number.
enum class MetricReduce : std::uint8_t {
  mean,  ///< of batches, each weighted by its samples
  sum,
  min,
  max,
  exact,  ///< the mean of all elements; in any order, and however they are divided, the same bits
};

}  // namespace athanor

namespace athanor::kernels {

/// How a loss counts in a total: as the nearest multiple of 2^-24, about the error that an f32 log-sum-exp
/// has anyway. Sums of such numbers are exact in f64 below 2^29, so that they are the same in any order.
template <class A> ATH_HD double counted_loss(A loss) {
  return std::rint(static_cast<double>(loss) * 0x1p24) * 0x1p-24;
}

/// Adds a batch to running totals on the device, so that nobody waits for its loss:
/// totals [3] f64 += {sum of losses, samples whose largest logit is the target's, N}.
/// losses [N] f32|f64, of each sample; logits [N, C] floating; target [N] i64; all dense. Of equal logits the
/// first counts as the largest; a row with a NaN counts as wrong, and so does one whose target is no class.
/// Losses count as counted_loss() says: totals below 2^29 have the same bits however samples are divided into
/// batches, and batches among ranks.
template <class Context>
void add_metrics(Context& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 const Tensor& totals);

/// Adds values (floating, dense, at least one) to a running total [2] f64 on the device, which begins as
/// zeros:
///
///     mean:      total += {their mean * weight, weight}
///     sum:       total += {their sum, 1}
///     min, max:  total = {the smallest (largest) so far, NaN where one is NaN; calls so far}
///     exact:     total += {the sum of their counted_loss(), how many they are}
template <class Context>
void add_metric(Context& context, const Tensor& values, double weight, MetricReduce reduce,
                const Tensor& total);

/// Adds a batch to a running total [2] f64 += {rows with fewer than k classes likelier than the target's, N}:
/// logits [N, C] floating, target [N] i64, both dense. What is likelier, and which rows are wrong,
/// add_metrics() says: with k = 1 it is its second sum.
template <class Context>
void add_top_k(Context& context, const Tensor& logits, const Tensor& target, std::int64_t k,
               const Tensor& total);

/// Adds pairs to a confusion matrix [C, C] f64: counts[target, predicted] += 1 for predicted and target [N]
/// i64, dense. A pair of which one is not in [0, C) is left out.
template <class Context>
void add_confusion(Context& context, const Tensor& predicted, const Tensor& target, const Tensor& counts);

/// What add_metric() makes of a total, given what its values come to: their sum, or their smallest or
/// largest.
ATH_HD inline void update_metric(double* total, double value, std::int64_t count, double weight,
                                 MetricReduce reduce) {
  const bool averages = reduce == MetricReduce::mean;
  if (averages) {
    total[0] += value / static_cast<double>(count) * weight;
  } else if (reduce == MetricReduce::sum || reduce == MetricReduce::exact || total[1] == 0) {
    total[0] += value;
  } else {
    const bool better = reduce == MetricReduce::min ? value < total[0] : value > total[0];
    if (better || value != value) total[0] = value;
  }
  total[1] += averages ? weight : reduce == MetricReduce::exact ? static_cast<double>(count) : 1;
}

/// Two values, or what earlier ones came to, as `reduce` joins them. A NaN stays.
struct JoinMetric {
  MetricReduce reduce;
  /// An element as it is joined.
  ATH_HD double counted(double element) const {
    return reduce == MetricReduce::exact ? counted_loss(element) : element;
  }
  ATH_HD double operator()(double a, double b) const {
    if (reduce != MetricReduce::min && reduce != MetricReduce::max) return a + b;
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
