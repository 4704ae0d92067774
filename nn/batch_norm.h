#pragma once

#include <cstdint>

#include "autograd/conv_norm.h"
#include "nn/module.h"

namespace athanor::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;                     ///< weight of the new batch in the running statistics
  Activation activation = Activation::none;  ///< fused
  bool scale = true;                         ///< trains gamma; else it is 1
  bool shift = true;                         ///< trains beta; else it is 0
  double initial_scale = 1;                  ///< of gamma
};

/// Batch normalisation over all axes but the last, with the activation fused: see batch_norm() in
/// autograd/norm.h. Parameters weight, bias [channels] f32; buffers running_mean, running_var.
class BatchNorm final : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, const BatchNormOptions& options = {});

  Tensor forward(const Tensor& x) override;
  /// A call of this layer, for an op that includes its norm: conv_norm().
  NormArguments arguments() const;

  /// From now on, training normalises over the batches of all ranks. dist/sync_batch_norm.h does this for the
  /// norms of a whole model. Null: over its own batch again.
  void join(JoinedBatch* joined) { params_.joined = joined; }
  /// Whether training, too, normalises by the running statistics, which it then leaves as they are.
  void keep_statistics(bool keep) { keeps_statistics_ = keep; }

 private:
  void reset(const InitKeys& keys) override;
  bool uses_batch() const { return training() && !keeps_statistics_; }

  BatchNormParams params_;
  double initial_scale_;
  bool keeps_statistics_ = false;
  Tensor weight_, bias_, running_mean_, running_var_;
};

}  // namespace athanor::nn
