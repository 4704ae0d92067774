#include "autograd/shape.h"
#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"

namespace athanor::nn {
namespace {

/// A small CNN for small images: 30,762 parameters for 8 x 8 x 1. Three 3x3 convolutions with batch norm, two
/// poolings, one linear layer.
class DigitsCnn final : public Module {
 public:
  explicit DigitsCnn(const ModelOptions& options)
      : conv1(options.in_channels, 32, 3, kConv, kNorm),
        conv2(32, 32, 3, kConv, kNorm),
        conv3(32, 64, 3, kConv, kNorm),
        fc((options.image_size / 4) * (options.width() / 4) * 64, options.classes,
           {.image = {options.image_size / 4, options.width() / 4, 64}}) {
    register_module("conv1", conv1.conv);
    register_module("bn1", conv1.norm);
    register_module("conv2", conv2.conv);
    register_module("bn2", conv2.norm);
    register_module("conv3", conv3.conv);
    register_module("bn3", conv3.norm);
    register_module("fc", fc);
  }

  Tensor forward(const Tensor& x) override {
    const Pool2dParams pool = square_window(2);
    const Tensor wide = conv2.pooled(conv1(x), pool);  // [N, 4, 4, 32]
    const Tensor deep = conv3.pooled(wide, pool);      // [N, 2, 2, 64]
    return fc(flatten(deep));
  }

 private:
  inline static const Conv2dOptions kConv{.padding = 1, .bias = false};  // batch norm has the shift
  static constexpr BatchNormOptions kNorm{.activation = Activation::relu};

  ConvNorm conv1, conv2, conv3;
  Linear fc;
};

}  // namespace

std::unique_ptr<Module> make_digits_cnn(const ModelOptions& options) {
  return std::make_unique<DigitsCnn>(options);
}

}  // namespace athanor::nn
