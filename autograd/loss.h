#pragma once

#include <cstdint>
#include <optional>

#include "tensor/tensor.h"

namespace athanor {

// Losses are f32 (f64 for f64), whatever their inputs are stored as; the mean of nothing is NaN.

enum class Reduction : std::uint8_t { mean, sum, none };

/// Softmax cross-entropy with label smoothing. logits [N, C] f16|bf16|f32|f64; target [N] i64 in [0, C).
/// Returns [] ([N] for none) f32 (f64 for f64), in nats; log-sum-exp in f32. Throws ArgumentError on rank,
/// dtype or device mismatch, and on a target out of range (CPU; elsewhere the loss is NaN). Source: Szegedy
/// et al. 2016, section 7 (smoothing); Blanchard et al. 2021 (max shift).
///
/// For images, logits may be [N, ..., C] with target [N, ...], and for one sample [C] with []. The target may
/// be i32 or u8, too; or a distribution, like logits in shape and dtype, which may need a gradient itself.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing = 0,
                     Reduction reduction = Reduction::mean);

struct CrossEntropyOptions {
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
  /// A target to pass over: its loss and gradient are 0, and the mean is of the others (NaN where there are
  /// none). Not for distributions. PyTorch passes over -100 without being asked.
  std::optional<std::int64_t> ignore_index = {};
  /// [C], f32 (f64 for f64): of each class, what its part of every loss is multiplied by. The mean over
  /// targets is then divided by the sum of their weights, that over distributions by N. No gradient.
  Tensor weight = {};
};
/// With q the distribution (of a target, 1 there and 0 elsewhere) and s the smoothing, the loss of a sample
/// is -sum_c w_c ((1 - s) q_c + s / C) log(softmax(logits)_c).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options);

/// The mean over the batch, and the losses it is of: for metrics, without a gradient.
struct CrossEntropy {
  Tensor mean;    ///< []
  Tensor losses;  ///< [N]
};
/// cross_entropy() of logits [N, C] and target [N] i64, with the loss of each sample at no cost.
CrossEntropy cross_entropy_of_each(const Tensor& logits, const Tensor& target, double label_smoothing = 0);
/// -log_probs[n][target[n]]; log_probs [N, C], target [N] i64.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction = Reduction::mean);

// Of two tensors of one shape, floating dtype and device (else ArgumentError), element by element.

/// (a - b)^2
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);
/// |a - b|; the derivative at 0 is 0.
Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);
/// With d = |a - b|: d^2 / (2 beta) where d < beta, else d - beta / 2; beta >= 0, of 0 |a - b|. Source:
/// Girshick 2015, arXiv:1504.08083.
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta = 1,
                      Reduction reduction = Reduction::mean);
/// With d = |a - b|: d^2 / 2 where d < delta, else delta (d - delta / 2); delta > 0. Source: Huber 1964.
Tensor huber_loss(const Tensor& a, const Tensor& b, double delta = 1, Reduction reduction = Reduction::mean);

/// batchmean: the sum over all elements, divided by the size of the first axis.
enum class KlReduction : std::uint8_t { mean, batchmean, sum, none };
/// target (log(target) - input), 0 where target is 0: Kullback and Leibler's divergence of the distribution
/// e^input from `target`. input holds logarithms; so does target where log_target.
Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target = false,
              KlReduction reduction = KlReduction::mean);

struct BceOptions {
  Tensor weight = {};      ///< what each loss is multiplied by
  Tensor pos_weight = {};  ///< what the part -target log(p) is multiplied by; needs no gradient
  Reduction reduction = Reduction::mean;
};
/// Binary cross-entropy of p = sigmoid(logits): -target log(p) - (1 - target) log(1 - p), in nats, without
/// overflow. target in [0, 1] is not checked. Weights are f32 (f64 for f64), of shapes that broadcast to
/// that of logits.
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options = {});
/// With one target for all.
Tensor bce_with_logits(const Tensor& logits, double target, const BceOptions& options = {});

}  // namespace athanor
