#include "nn/models/lenet.h"

#include "autograd/shape.h"

namespace athanor::nn {

LeNet5::LeNet5(const ModelOptions& options)
    : side_((options.image_size / 2 - 4) / 2),
      conv1(options.in_channels, 6, 5, {.padding = 2}),
      conv2(6, 16, 5),
      fc1(side_ * side_ * 16, 120, {.activation = Activation::relu, .image = {side_, side_, 16}}),
      fc2(120, 84, {.activation = Activation::relu}),
      fc3(84, options.classes) {
  register_module("conv1", conv1);
  register_module("conv2", conv2);
  register_module("fc1", fc1);
  register_module("fc2", fc2);
  register_module("fc3", fc3);
}

Tensor LeNet5::forward(const Tensor& x) {
  // The ReLU follows the maximum, where it has a quarter of the values.
  const Tensor y = conv_pool_relu(conv2, conv_pool_relu(conv1, x));  // [N, 5, 5, 16] for 28 x 28
  return fc3(fc2(fc1(flatten(y))));
}

}  // namespace athanor::nn
