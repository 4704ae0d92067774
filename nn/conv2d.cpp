#include "nn/conv2d.h"

#include "autograd/conv.h"
#include "autograd/shape.h"

namespace athanor::nn {

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

Tensor Conv2d::forward(const Tensor& x) {
  // A frozen weight is a buffer, and buffers stay f32.
  const bool casts = options_.frozen_weight && weight_.dtype() != x.dtype();
  return conv2d(x, casts ? cast(weight_, x.dtype()) : weight_, bias_, params_);
}

ConvArguments Conv2d::arguments() const {
  about_to_run();
  return {weight_, bias_, params_, options_.frozen_weight, keeps_f32(), layer_name()};
}

void Conv2d::reset(const InitKeys& keys) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight_.shape()).in));
  const Init standard = [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); };
  (options_.weight_init ? options_.weight_init : standard)(weight_, keys("weight"));
  if (bias_.defined()) (options_.bias_init ? options_.bias_init : standard)(bias_, keys("bias"));
}

}  // namespace athanor::nn
