#include "nn/batch_norm.h"

namespace athanor::nn {

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormOptions& options)
    : params_{options.eps, options.momentum, options.activation, nullptr},
      initial_scale_(options.initial_scale) {
  ATH_CHECK(channels > 0, "BatchNorm: channels must be > 0, but got {}", channels);
  constexpr ParameterOptions kNorm{.keep_f32 = true, .decay = false};
  if (options.scale) weight_ = register_parameter("weight", Tensor::zeros({channels}), kNorm);
  if (options.shift) bias_ = register_parameter("bias", Tensor::zeros({channels}), kNorm);
  running_mean_ = register_buffer("running_mean", Tensor::zeros({channels}));
  running_var_ = register_buffer("running_var", Tensor::zeros({channels}));
  BatchNorm::reset(InitKeys(0, ""));
}

Tensor BatchNorm::forward(const Tensor& x) {
  return batch_norm(x, weight_, bias_, running_mean_, running_var_, uses_batch(), params_);
}

NormArguments BatchNorm::arguments() const {
  about_to_run();
  return {weight_, bias_, running_mean_, running_var_, uses_batch(), params_, keeps_f32(), layer_name()};
}

void BatchNorm::reset(const InitKeys&) {
  if (weight_.defined()) init::constant(weight_, initial_scale_);
  if (bias_.defined()) init::constant(bias_, 0);
  init::constant(running_mean_, 0);
  init::constant(running_var_, 1);
}

}  // namespace athanor::nn
