#pragma once

#include "kernels/activation.h"
#include "tensor/tensor.h"

namespace athanor {

struct BatchNormParams {
  float eps = 1e-5f;
  float momentum = 0.1f;  ///< share of the new batch in the running statistics
  Activation activation = Activation::none;
};

/// Batch normalisation over all axes but the last (channels), with the activation and a residual fused:
/// y = activation((x - mean) / sqrt(var + eps) * gamma + beta + residual).
/// x, residual (or undefined), y [..., C] floating; gamma, beta (or undefined: 1 and 0), running_mean,
/// running_var [C] f32 (f64 for f64 x). Training uses the batch's statistics (biased variance) and moves the
/// running ones towards them (unbiased variance); a batch of one value per channel is an ArgumentError.
/// Evaluation uses the running ones. Statistics are kept in f32. Source: Ioffe and Szegedy 2015, algorithm 1.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, const BatchNormParams& params = {},
                  const Tensor& residual = {});

/// Layer normalisation over the last axes, gamma's: x [..., D], gamma, beta [D] f32 (or undefined).
/// Source: Ba, Kiros and Hinton 2016.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, float eps = 1e-5f,
                  int axes = 1);

}  // namespace athanor
