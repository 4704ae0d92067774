#include "nn/batch_norm.h"

#include <cmath>

#include "autograd/op_listener.h"

namespace athanor::nn {

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormOptions& options)
    : params_{options.eps, options.momentum, options.activation, nullptr} {
  ATH_CHECK(channels > 0, "BatchNorm: channels must be > 0, but got {}", channels);
  constexpr ParameterOptions kNorm{.keep_f32 = true, .decay = false};
  if (options.scale) weight_ = register_parameter("weight", Tensor::zeros({channels}), kNorm);
  if (options.shift) bias_ = register_parameter("bias", Tensor::zeros({channels}), kNorm);
  running_mean_ = register_buffer("running_mean", Tensor::zeros({channels}));
  running_var_ = register_buffer("running_var", Tensor::zeros({channels}));
  BatchNorm::reset(InitKeys(0, ""));
}

BatchNormParams BatchNorm::params_for(const ConvAndSums& x) const {
  BatchNormParams params = params_;
  if (reads_sums()) params.sums = x.sums;
  return params;
}

Tensor BatchNorm::forward(const ConvAndSums& x, const Tensor& residual) {
  about_to_run();
  const LayerScope named(layer_name());
  return batch_norm(x.y, weight_, bias_, running_mean_, running_var_, training(), params_for(x), residual);
}

BatchNormTerm BatchNorm::term(const ConvAndSums& x) const {
  return {x.y, weight_, bias_, running_mean_, running_var_, params_for(x)};
}

Tensor BatchNorm::forward_added(const ConvAndSums& x, BatchNorm& other, const ConvAndSums& y) {
  const bool together = training() && other.training() && fuses_batch_norm_pair(term(x), other.term(y), true);
  if (!together) {
    const Tensor residual = other.reads_sums() ? other.forward(y, {}) : other(y.y);
    return forward(x, residual);
  }
  about_to_run();
  other.about_to_run();
  const LayerScope named(layer_name());
  return batch_norm_pair(term(x), other.term(y), true);
}

BatchNorm::ScaleAndShift BatchNorm::scale_and_shift() const {
  const std::int64_t channels = running_mean_.numel();
  const ScaleAndShift result{Tensor::empty({channels}), Tensor::empty({channels})};
  const float eps = static_cast<float>(params_.eps);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double gamma = weight_.defined() ? weight_.data<float>()[c] : 1,
                 beta = bias_.defined() ? bias_.data<float>()[c] : 0, mean = running_mean_.data<float>()[c];
    const double scale = gamma / std::sqrt(static_cast<double>(running_var_.data<float>()[c]) + eps);
    result.scale.data<float>()[c] = static_cast<float>(scale);
    result.shift.data<float>()[c] = static_cast<float>(beta - mean * scale);
  }
  return result;
}

void BatchNorm::reset(const InitKeys&) {
  if (weight_.defined()) init::constant(weight_, 1);
  if (bias_.defined()) init::constant(bias_, 0);
  init::constant(running_mean_, 0);
  init::constant(running_var_, 1);
}

}  // namespace athanor::nn
