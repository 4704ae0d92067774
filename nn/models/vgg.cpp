#include "autograd/shape.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"
#include "nn/sequential.h"

namespace athanor::nn {
namespace {

LinearOptions linear_options(Activation activation, FlattenedImage image = {}) {
  return {.activation = activation,
          .image = image,
          .weight_init = [](const Tensor& w, RandomKey key) { init::normal(w, key, 0, 0.01); },
          .bias_init = init::zeros};
}

/// VGG-11 (configuration A) with batch norm; names, initial values and 132,868,840 parameters as in
/// torchvision. Source: Simonyan and Zisserman 2015, arXiv:1409.1556, table 1.
class Vgg11Bn final : public Module {
 public:
  explicit Vgg11Bn(const ModelOptions& options) {
    const Conv2dOptions conv{.padding = 1, .weight_init = init::kaiming_fan_out, .bias_init = init::zeros};
    constexpr std::int64_t kPool = 0;
    std::int64_t channels = options.in_channels;
    int place = 0;  // index in torchvision's list, which includes the ReLUs fused here
    for (const std::int64_t width :
         {64L, kPool, 128L, kPool, 256L, 256L, kPool, 512L, 512L, kPool, 512L, 512L, kPool}) {
      if (width == kPool) {
        features.add_named<MaxPool2d>(std::to_string(place++), 2);
        continue;
      }
      features.add_named<Conv2d>(std::to_string(place), channels, width, 3, conv);
      features.add_named<BatchNorm>(std::to_string(place + 1), width,
                                    BatchNormOptions{.activation = Activation::relu});
      place += 3;
      channels = width;
    }
    classifier.add_named<Linear>("0", 7 * 7 * 512, 4096, linear_options(Activation::relu, {7, 7, 512}));
    classifier.add_named<Dropout>("2");
    classifier.add_named<Linear>("3", 4096, 4096, linear_options(Activation::relu));
    classifier.add_named<Dropout>("5");
    classifier.add_named<Linear>("6", 4096, options.classes, linear_options(Activation::none));
    register_module("features", features);
    register_module("classifier", classifier);
  }

  Tensor forward(const Tensor& x) override { return classifier(flatten(pool(features(x)))); }

 private:
  Sequential features, classifier;
  AdaptiveAvgPool2d pool{7};
};

}  // namespace

std::unique_ptr<Module> make_vgg11_bn(const ModelOptions& options) {
  return std::make_unique<Vgg11Bn>(options);
}

}  // namespace athanor::nn
