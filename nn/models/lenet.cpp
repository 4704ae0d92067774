#include "autograd/shape.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/models/model.h"

namespace athanor::nn {
namespace {

/// LeNet-5 as it is trained today: ReLU, max pooling, full connections; 61,706 parameters for 28 x 28 x 1.
/// Source: LeCun, Bottou, Bengio and Haffner 1998, section 2 (tanh, average pooling, partial connections).
class LeNet5 final : public Module {
 public:
  explicit LeNet5(const ModelOptions& options)
      : height_((options.image_size / 2 - 4) / 2),
        width_((options.width() / 2 - 4) / 2),
        conv1(options.in_channels, 6, 5, {.padding = 2}),
        conv2(6, 16, 5),
        fc1(height_ * width_ * 16, 120, {.activation = Activation::relu, .image = {height_, width_, 16}}),
        fc2(120, 84, {.activation = Activation::relu}),
        fc3(84, options.classes) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }

  Tensor forward(const Tensor& x) override {
    // The ReLU follows the maximum, where it has a quarter of the values.
    const Tensor y = conv_pool_relu(conv2, conv_pool_relu(conv1, x));  // [N, 5, 5, 16] for 28 x 28
    return fc3(fc2(fc1(flatten(y))));
  }

 private:
  std::int64_t height_, width_;  // of the image that reaches fc1
  Conv2d conv1, conv2;
  Linear fc1, fc2, fc3;
};

}  // namespace

std::unique_ptr<Module> make_lenet5(const ModelOptions& options) {
  return std::make_unique<LeNet5>(options);
}

}  // namespace athanor::nn
