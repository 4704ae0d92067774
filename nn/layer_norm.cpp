#include "nn/layer_norm.h"

#include "autograd/norm.h"

namespace athanor::nn {

LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& options) : shape_(shape), eps_(options.eps) {
  ATH_CHECK(shape.rank() >= 1 && shape.numel() > 0,
            "LayerNorm: shape must have at least one element, but is {}", shape);
  constexpr ParameterOptions kNorm{.keep_f32 = true, .decay = false};
  if (options.scale) weight_ = register_parameter("weight", Tensor::zeros(shape), kNorm);
  if (options.shift) bias_ = register_parameter("bias", Tensor::zeros(shape), kNorm);
  LayerNorm::reset(InitKeys(0, ""));
}

Tensor LayerNorm::forward(const Tensor& x) {
  const int axes = shape_.rank();
  bool fits = x.rank() >= axes;
  for (int i = 1; fits && i <= axes; ++i) fits = x.dim(-i) == shape_[axes - i];
  ATH_CHECK(fits, "LayerNorm: the last axes must be {}, but got {}", shape_, x.shape());
  return layer_norm(x, weight_, bias_, eps_, axes);
}

void LayerNorm::reset(const InitKeys&) {
  if (weight_.defined()) init::constant(weight_, 1);
  if (bias_.defined()) init::constant(bias_, 0);
}

}  // namespace athanor::nn
