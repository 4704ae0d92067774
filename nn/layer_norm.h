#pragma once

#include "nn/module.h"

namespace athanor::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool scale = true;  ///< trains gamma; else it is 1
  bool shift = true;  ///< trains beta; else it is 0
};

/// Layer normalisation over the last axes, which have `shape`. Parameters weight, bias of `shape`, f32.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(const Shape& shape, const LayerNormOptions& options = {});

  Tensor forward(const Tensor& x) override;

 private:
  void reset(const InitKeys& keys) override;

  Shape shape_;
  double eps_;
  Tensor weight_, bias_;
};

}  // namespace athanor::nn
