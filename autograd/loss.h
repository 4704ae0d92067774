#pragma once

#include <cstdint>
#include <optional>

#include "tensor/tensor.h"

namespace athanor {

// Losses are f32 (f64 for f64), whatever the inputs' dtype; the mean of no losses is NaN.

/// What a loss makes of its values: their mean, their sum, or all of them.
enum class Reduction : std::uint8_t { mean, sum, none };

/// Softmax cross-entropy with label smoothing. logits [N, C] f16|bf16|f32|f64; target [N] i64 in [0, C).
/// Returns [] ([N] for none) f32 (f64 for f64), in nats; log-sum-exp in f32. Throws ArgumentError on rank,
/// dtype or device mismatch, and on a target out of range (CPU; elsewhere the loss is NaN). Source: Szegedy
/// et al. 2016, section 7 (smoothing); Blanchard et al. 2021 (max shift).
///
/// Images: logits [N, ..., C] with target [N, ...]; a single sample: [C] with []. The target may also be i32
/// or u8, or a distribution of the logits' shape and dtype, which may need a gradient itself.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing = 0,
                     Reduction reduction = Reduction::mean);

struct CrossEntropyOptions {
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
  /// Targets to ignore: their loss and gradient are 0, and the mean is over the others (NaN if there are
  /// none). Not for distributions. PyTorch ignores -100 by default; here nothing is ignored by default.
  std::optional<std::int64_t> ignore_index = {};
  /// [C], f32 (f64 for f64), no gradient: the factor of each class in every loss. The mean is then divided by
  /// the sum of the targets' weights, or by N for distributions.
  Tensor weight = {};
};
/// With q the target distribution (one-hot for an index) and s the smoothing, the loss of a sample is
/// -sum_c w_c ((1 - s) q_c + s / C) log(softmax(logits)_c).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options);

/// The mean over the batch and the losses of its samples: for metrics, without a gradient.
struct CrossEntropy {
  Tensor mean;    ///< []
  Tensor losses;  ///< [N]
};
/// cross_entropy() of logits [N, C] and target [N] i64, with the loss of each sample at no extra cost.
CrossEntropy cross_entropy_of_each(const Tensor& logits, const Tensor& target, double label_smoothing = 0);
/// -log_probs[n][target[n]]; log_probs [N, C], target [N] i64.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction = Reduction::mean);

// Elementwise losses of two tensors of one shape, floating dtype and device (else ArgumentError).

/// (a - b)^2
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);
/// |a - b|; the derivative at 0 is 0.
Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);
/// With d = |a - b|: d^2 / (2 beta) if d < beta, else d - beta / 2; beta >= 0, and 0 gives |a - b|. Source:
/// Girshick 2015, arXiv:1504.08083.
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta = 1,
                      Reduction reduction = Reduction::mean);
/// With d = |a - b|: d^2 / 2 if d < delta, else delta (d - delta / 2); delta > 0. Source: Huber 1964.
Tensor huber_loss(const Tensor& a, const Tensor& b, double delta = 1, Reduction reduction = Reduction::mean);

/// batchmean: the sum over all elements divided by the size of the first axis.
enum class KlReduction : std::uint8_t { mean, batchmean, sum, none };
/// Kullback-Leibler divergence of e^input from `target`: target (log(target) - input), 0 where target is 0.
/// input holds logarithms; with log_target, so does target.
Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target = false,
              KlReduction reduction = KlReduction::mean);

struct BceOptions {
  Tensor weight = {};      ///< the factor of each loss
  Tensor pos_weight = {};  ///< the factor of the term -target log(p); needs no gradient
  Reduction reduction = Reduction::mean;
};
/// Binary cross-entropy of p = sigmoid(logits): -target log(p) - (1 - target) log(1 - p), in nats, without
/// overflow. target must be in [0, 1], which is not checked. Weights are f32 (f64 for f64) and broadcast to
/// the logits' shape.
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options = {});
/// With the same target for every element.
Tensor bce_with_logits(const Tensor& logits, double target, const BceOptions& options = {});

/// bce_with_logits() of each element times a_t (1 - p_t)^gamma: p_t is the probability of what the target
/// says, so that what is already right counts less, and a_t is alpha for 1 and 1 - alpha for 0 (in between
/// for targets in between). gamma >= 0; alpha in [0, 1], or below 0 for a_t = 1. target in [0, 1], which is
/// not checked. Source: Lin et al. 2017, arXiv:1708.02002, equation 5.
Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, double gamma = 2, double alpha = 0.25,
                          Reduction reduction = Reduction::mean);

}  // namespace athanor
