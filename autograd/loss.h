#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

enum class Reduction : std::uint8_t { mean, sum, none };

/// Softmax cross-entropy with label smoothing. logits [N, C] f16|bf16|f32|f64; target [N] i64 in [0, C).
/// Returns [] ([N] for none) f32 (f64 for f64), in nats; log-sum-exp in f32. Throws ArgumentError on rank,
/// dtype or device mismatch, and on a target out of range (CPU). Source: Szegedy et al. 2016, section 7
/// (smoothing); Blanchard et al. 2021 (max shift).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing = 0,
                     Reduction reduction = Reduction::mean);
/// The mean over the batch, and the losses it is of: for metrics, without a gradient.
struct CrossEntropy {
  Tensor mean;    ///< []
  Tensor losses;  ///< [N]
};
/// cross_entropy(), with the loss of each sample at no cost.
CrossEntropy cross_entropy_of_each(const Tensor& logits, const Tensor& target, double label_smoothing = 0);
/// -log_probs[n][target[n]]; shapes as in cross_entropy.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction = Reduction::mean);
/// (a - b)^2; a and b of one shape.
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);

}  // namespace athanor
