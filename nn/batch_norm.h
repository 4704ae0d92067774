#pragma once

#include <cstdint>

#include "autograd/conv.h"
#include "autograd/norm.h"
#include "nn/module.h"

namespace athanor::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;                     ///< weight of the new batch in the running statistics
  Activation activation = Activation::none;  ///< fused
  bool scale = true;                         ///< trains gamma; else it is 1
  bool shift = true;                         ///< trains beta; else it is 0
};

/// Batch normalisation over all axes but the last, with the activation and a residual fused: see batch_norm()
/// in autograd/norm.h. Parameters weight, bias [channels] f32; buffers running_mean, running_var.
class BatchNorm final : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, const BatchNormOptions& options = {});

  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  /// activation(norm(x) + residual), in one pass.
  Tensor forward(const Tensor& x, const Tensor& residual) { return forward(ConvAndSums{x, {}}, residual); }
  /// The same of a convolution's result, whose sums are used if they are there.
  Tensor forward(const ConvAndSums& x, const Tensor& residual);
  /// Whether sums of x (ConvAndSums) are of use: in training over its own batch.
  bool reads_sums() const { return training() && params_.joined == nullptr && !keeps_f32(); }

  /// activation(norm(x) + other(y)): in fewer passes than one after the other where batch_norm_pair() is one
  /// op.
  Tensor forward_added(const ConvAndSums& x, BatchNorm& other, const ConvAndSums& y);

  Activation activation() const { return params_.activation; }
  /// Evaluation without activation and residual: y = x scale + shift. [channels] f32 each. The statistics
  /// must be on the CPU.
  struct ScaleAndShift {
    Tensor scale, shift;
  };
  ScaleAndShift scale_and_shift() const;

  /// From now on, training normalises over the batches of all ranks. dist/sync_batch_norm.h does this for the
  /// norms of a whole model. Null: over its own batch again.
  void join(JoinedBatch* joined) { params_.joined = joined; }

 private:
  void reset(const InitKeys& keys) override;

  BatchNormParams params_for(const ConvAndSums& x) const;
  BatchNormTerm term(const ConvAndSums& x) const;

  BatchNormParams params_;
  Tensor weight_, bias_, running_mean_, running_var_;
};

}  // namespace athanor::nn
