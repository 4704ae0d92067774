#include "nn/models/digits_cnn.h"

#include "autograd/shape.h"
#include "nn/conv_norm.h"

namespace athanor::nn {
namespace {

const Conv2dOptions kConv{.padding = 1, .bias = false};  // batch norm has the shift
constexpr BatchNormOptions kNorm{.activation = Activation::relu};

}  // namespace

DigitsCnn::DigitsCnn(const ModelOptions& options)
    : conv1(options.in_channels, 32, 3, kConv),
      conv2(32, 32, 3, kConv),
      conv3(32, 64, 3, kConv),
      bn1(32, kNorm),
      bn2(32, kNorm),
      bn3(64, kNorm),
      fc((options.image_size / 4) * (options.image_size / 4) * 64, options.classes,
         {.image = {options.image_size / 4, options.image_size / 4, 64}}) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  register_module("conv2", conv2);
  register_module("bn2", bn2);
  register_module("conv3", conv3);
  register_module("bn3", bn3);
  register_module("fc", fc);
}

Tensor DigitsCnn::forward(const Tensor& x) {
  const Tensor wide = conv_norm_act(conv2, bn2, conv_norm_act(conv1, bn1, x));  // [N, 8, 8, 32]
  const Tensor deep = conv_norm_act(conv3, bn3, pool(wide));                    // [N, 4, 4, 64]
  return fc(flatten(pool(deep)));
}

}  // namespace athanor::nn
