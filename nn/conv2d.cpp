#include "nn/conv2d.h"

#include <mutex>

#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/op_listener.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "kernels/packed_weights.h"
#include "nn/batch_norm.h"

namespace athanor::nn {

/// Packed by the first call that uses it.
struct Conv2d::Packed {
  std::once_flag once;
  const BatchNorm* norm = nullptr;  // the norm folded into the weights
  std::unique_ptr<kernels::PackedWeights> weights;
};

Conv2d::~Conv2d() = default;

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options)
    : options_(options) {
  const std::int64_t groups = options.groups;
  ATH_CHECK(in > 0 && out > 0 && kernel > 0, "Conv2d: sizes must be > 0, but got {} -> {}, kernel {}", in,
            out, kernel);
  ATH_CHECK(groups > 0 && in % groups == 0 && out % groups == 0,
            "Conv2d: groups must divide {} inputs and {} outputs, but got {}", in, out, groups);
  params_.stride[0] = params_.stride[1] = options.stride;
  params_.padding[0] = params_.padding[1] = options.padding;
  params_.dilation[0] = params_.dilation[1] = options.dilation;
  ATH_CHECK(!options.same_padding || (options.stride == 1 && options.padding == 0),
            "Conv2d: same_padding must have stride 1 and padding 0, but got {} and {}", options.stride,
            options.padding);
  params_.same_padding = options.same_padding;
  params_.groups = groups;
  params_.activation = options.activation;
  params_.impl = options.impl;

  const Tensor weight = Tensor::zeros({out, kernel, kernel, in / groups});
  weight_ = options.frozen_weight ? register_buffer("weight", weight) : register_parameter("weight", weight);
  if (options.bias) bias_ = register_parameter("bias", Tensor::zeros({out}), {.decay = false});
  needs_values();
}

void Conv2d::on_pack() {
  alone_ = has_packed_weights() ? std::make_unique<Packed>() : nullptr;
  folded_ = has_packed_weights() ? std::make_unique<Packed>() : nullptr;
}

bool Conv2d::may_use_packed(const Tensor& x) const {
  return has_packed_weights() && inference_mode() && x.defined() && x.device().is_cpu() &&
         x.dtype() == DType::f32 && weight_.dtype() == DType::f32;
}

const kernels::PackedWeights* Conv2d::packed_with(const BatchNorm& norm, const Tensor& x) const {
  if (!may_use_packed(x) || !norm.has_packed_weights() || params_.activation != Activation::none)
    return nullptr;
  std::call_once(folded_->once, [&] {
    const AllocTag tag("weights");
    const auto [scale, shift] = norm.scale_and_shift();
    folded_->norm = &norm;
    folded_->weights = std::make_unique<kernels::PackedWeights>(weight_, bias_, scale, shift);
  });
  return folded_->norm == &norm ? folded_->weights.get() : nullptr;
}

const kernels::PackedWeights* Conv2d::packed(const Tensor& x) const {
  if (!may_use_packed(x)) return nullptr;
  std::call_once(alone_->once,
                 [&] { alone_->weights = std::make_unique<kernels::PackedWeights>(weight_, bias_); });
  return alone_->weights.get();
}

Tensor Conv2d::forward(const Tensor& x) {
  if (const kernels::PackedWeights* const weights = packed(x)) return conv2d_packed(x, *weights, params_);
  return conv2d(x, weight_for(x), bias_, params_);
}

ConvAndSums Conv2d::with_sums(const Tensor& x) {
  if (keeps_f32() || has_packed_weights()) return {(*this)(x), {}};
  about_to_run();
  const LayerScope named(layer_name());
  return conv2d_with_sums(x, weight_for(x), bias_, params_);
}

Tensor Conv2d::weight_for(const Tensor& x) const {
  // A frozen weight is a buffer, and buffers stay f32.
  return options_.frozen_weight && weight_.dtype() != x.dtype() ? cast(weight_, x.dtype()) : weight_;
}

Tensor conv_pool_relu(Conv2d& conv, const Tensor& x) {
  if (const kernels::PackedWeights* const weights = conv.packed(x))
    return conv2d_pool_packed(x, *weights, conv.params_);
  return relu(max_pool2d(conv(x)));
}

void Conv2d::reset(const InitKeys& keys) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight_.shape()).in));
  const Init standard = [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); };
  (options_.weight_init ? options_.weight_init : standard)(weight_, keys("weight"));
  if (bias_.defined()) (options_.bias_init ? options_.bias_init : standard)(bias_, keys("bias"));
}

}  // namespace athanor::nn
