#include "nn/conv_transpose2d.h"

namespace athanor::nn {

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 const ConvTranspose2dOptions& options)
    : weight_init_(options.weight_init), bias_init_(options.bias_init) {
  const std::int64_t groups = options.groups;
  ATH_CHECK(in > 0 && out > 0 && kernel > 0,
            "ConvTranspose2d: sizes must be > 0, but got {} -> {}, kernel {}", in, out, kernel);
  ATH_CHECK(groups > 0 && in % groups == 0 && out % groups == 0,
            "ConvTranspose2d: groups must divide {} inputs and {} outputs, but got {}", in, out, groups);
  for (int axis = 0; axis < 2; ++axis) {
    params_.stride[axis] = options.stride;
    params_.padding[axis] = options.padding;
    params_.output_padding[axis] = options.output_padding;
    params_.dilation[axis] = options.dilation;
  }
  params_.groups = groups;
  params_.impl = options.impl;

  weight_ = register_parameter("weight", Tensor::zeros({in, kernel, kernel, out / groups}));
  if (options.bias) bias_ = register_parameter("bias", Tensor::zeros({out}), {.decay = false});
  needs_values();
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight_, bias_, params_);
}

void ConvTranspose2d::reset(const InitKeys& keys) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight_.shape()).in));
  const Init standard = [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); };
  (weight_init_ ? weight_init_ : standard)(weight_, keys("weight"));
  if (bias_.defined()) (bias_init_ ? bias_init_ : standard)(bias_, keys("bias"));
}

}  // namespace athanor::nn
