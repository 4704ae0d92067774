#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/context.h"
#include "tensor/half.h"

namespace athanor {

/// How the values of a metric from several steps are combined into one number.
enum class MetricReduce : std::uint8_t {
  mean,  ///< of batches, each weighted by its samples
  sum,
  min,
  max,
  exact,  ///< the mean of all elements, with the same bits for any order and division
};

}  // namespace athanor

namespace athanor::kernels {

/// Rounds a loss for a total: to a multiple of 2^-24, about the error of an f32 log-sum-exp. Sums of such
/// numbers are exact in f64 below 2^29, and so the same in any order.
template <class A> ATH_HD double quantized_loss(A loss) {
  return std::rint(static_cast<double>(loss) * 0x1p24) * 0x1p-24;
}

/// Whether a class with logit x counts as likelier than the label, whose logit is `best`: of equals the
/// first.
template <class A> ATH_HD bool is_likelier(A x, std::int64_t at, A best, std::int64_t label) {
  return at < label ? x >= best : x > best;
}

/// Adds a batch to running totals on the device, without a wait for its loss:
/// totals [3] f64 += {sum of losses, samples whose largest logit is the target's, N}.
/// losses [N] f32|f64, one per sample; logits [N, C] floating; target [N] i64; all dense. The first of equal
/// logits counts as the largest; a row with a NaN, or with a target that is no class, counts as wrong. Losses
/// are rounded by quantized_loss(): below 2^29, totals have the same bits for any division of samples into
/// batches, and of batches among ranks.
ATH_KERNEL(void, add_metrics, const Tensor& losses, const Tensor& logits, const Tensor& target, Out totals);

/// Adds values (floating, dense, at least one) to a running total [2] f64 on the device, initially zeros:
///
///     mean:      total += {their mean * weight, weight}
///     sum:       total += {their sum, 1}
///     min, max:  total = {the smallest (largest) so far, NaN where one is NaN; calls so far}
///     exact:     total += {the sum of their quantized_loss(), their number}
ATH_KERNEL(void, add_metric, const Tensor& values, double weight, MetricReduce reduce, Out total);
ATH_MAP(add_metric, (const Tensor& values, double, MetricReduce, Out total), "metrics", (values, total),
        (total))

/// Adds a batch to a running total [2] f64 += {rows with fewer than k classes likelier than the target's, N}:
/// logits [N, C] floating, target [N] i64, both dense. Ties and wrong rows are as in add_metrics(): k = 1
/// gives its second sum.
ATH_KERNEL(void, add_top_k, const Tensor& logits, const Tensor& target, std::int64_t k, Out total);

/// Adds pairs to a confusion matrix [C, C] f64: counts[target, predicted] += 1 for predicted and target [N]
/// i64, dense. Pairs with a value outside [0, C) are ignored.
ATH_KERNEL(void, add_confusion, const Tensor& predicted, const Tensor& target, Out counts);

/// Writes samples to their rows of a table [M, 1 + 2 K] f64: table[at[n]] = {1, prediction[n], target[n]}.
/// prediction and target [N, K] f64, at [N] i64, all dense. Samples with `at` outside [0, M) are left out; of
/// equal ones any stays.
ATH_KERNEL(void, keep_rows, const Tensor& prediction, const Tensor& target, const Tensor& at, Out table);

/// The update of a total in add_metric(), given the sum, minimum or maximum of its values.
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

/// Joins two values, or two partial results, by `reduce`. NaN stays NaN.
struct JoinMetric {
  MetricReduce reduce;
  /// An element in the form in which it is joined.
  ATH_HD double counted(double element) const {
    return reduce == MetricReduce::exact ? quantized_loss(element) : element;
  }
  ATH_HD double operator()(double a, double b) const {
    if (reduce != MetricReduce::min && reduce != MetricReduce::max) return a + b;
    if (a != a || b != b) return a + b;
    return (reduce == MetricReduce::min) == (a < b) ? a : b;
  }
  /// The neutral element.
  ATH_HD double none() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return reduce == MetricReduce::min ? kInfinity : reduce == MetricReduce::max ? -kInfinity : 0;
  }
};

}  // namespace athanor::kernels
