#pragma once

#include "kernels/activation.h"
#include "tensor/base/error.h"
#include "tensor/tensor.h"

namespace athanor {

/// Batches of several ranks that are normalised as one: see dist/sync_batch_norm.h.
class JoinedBatch {
 public:
  virtual ~JoinedBatch() = default;
  /// Gathers `row` [n] f64 of every rank, in rank order: [P, n] on row's device, valid until the next call.
  /// All ranks must call it with the same n and in the same order.
  virtual Tensor gather(const Tensor& row) = 0;
};

struct BatchNormParams {
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new batch in the running statistics
  Activation activation = Activation::none;
  /// In training, the joined batch of x; must outlive the backward pass. Null: x is the whole batch.
  JoinedBatch* joined = nullptr;
};

/// A batch norm in training got a single value per channel, whose variance is nothing.
class TooFewValuesError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

/// Batch normalisation over all axes but the last (channels), with the activation and a residual fused:
/// y = activation((x - mean) / sqrt(var + eps) * gamma + beta + residual).
/// x, residual (or undefined), y [..., C] floating; gamma, beta (or undefined: 1 and 0), running_mean,
/// running_var [C] f32 (f64 for f64 x). Training uses the batch's statistics (biased variance) and moves the
/// running ones towards them (unbiased variance); one value per channel is an ArgumentError. Evaluation uses
/// the running ones. Statistics, eps and momentum are f32 (f64 for f64 x). Source: Ioffe and Szegedy 2015,
/// algorithm 1.
///
/// With a joined batch, statistics cover the values of all ranks, with the same bits on each. A rank may have
/// no values if all ranks together have at least two. dL/dx is that of the sum of all ranks' losses;
/// gradients of gamma and beta are this rank's part, to be summed over ranks like any other. Each rank sends
/// every other rank 1 + 2 C f64, forward and, if x needs a gradient, backward.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, const BatchNormParams& params = {},
                  const Tensor& residual = {});

/// Layer normalisation over gamma's axes, the last ones: x [..., D], gamma, beta [D] f32 (or undefined).
/// Source: Ba, Kiros and Hinton 2016.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5,
                  int axes = 1);

/// Group normalisation: normalises each of `groups` groups of adjacent channels of an image over all pixels.
/// x [N, ..., C] floating; gamma, beta [C] f32 (f64 for f64 x; undefined: 1 and 0). Statistics are f32 (f64
/// for f64 x). Throws ArgumentError on rank, dtype, shapes, groups that do not divide C and, as PyTorch does,
/// a batch with one value per group. Source: Wu and He 2018, arXiv:1803.08494.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& gamma = {}, const Tensor& beta = {},
                  double eps = 1e-5);

/// Group normalisation with one group per channel: x [N, ..., C] with at least two pixels. No running
/// statistics. Source: Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022.
Tensor instance_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);

}  // namespace athanor
