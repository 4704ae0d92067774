#include "nn/models/lenet.h"

#include "autograd/shape.h"

namespace athanor::nn {

LeNet5::LeNet5(const ModelOptions& options)
    : side_((options.image_size / 2 - 4) / 2),
      conv1(options.in_channels, 6, 5, {.padding = 2, .activation = Activation::relu}),
      conv2(6, 16, 5, {.activation = Activation::relu}),
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
  Tensor y = conv1(x);  // each goes when the next is there
  y = pool(y);
  y = conv2(y);
  y = pool(y);  // [N, 5, 5, 16] for 28 x 28
  return fc3(fc2(fc1(flatten(y))));
}

}  // namespace athanor::nn
