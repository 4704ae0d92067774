#include "autograd/shape.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"
#include "nn/sequential.h"

namespace athanor::nn {
namespace {

/// AlexNet in its one-tower form; names and 61,100,840 parameters as in torchvision.
/// Source: Krizhevsky 2014, arXiv:1404.5997.
class AlexNet final : public Module {
 public:
  explicit AlexNet(const ModelOptions& options) {
    constexpr auto kRelu = Activation::relu;
    const auto conv = [&](const char* name, std::int64_t in, std::int64_t out, std::int64_t kernel,
                          std::int64_t stride, std::int64_t padding) {
      features.add_named<Conv2d>(name, in, out, kernel,
                                 Conv2dOptions{.stride = stride, .padding = padding, .activation = kRelu});
    };
    // Numbers skip the ReLUs, which are fused here, so that names match torchvision's.
    conv("0", options.in_channels, 64, 11, 4, 2);
    features.add_named<MaxPool2d>("2", 3, 2);
    conv("3", 64, 192, 5, 1, 2);
    features.add_named<MaxPool2d>("5", 3, 2);
    conv("6", 192, 384, 3, 1, 1);
    conv("8", 384, 256, 3, 1, 1);
    conv("10", 256, 256, 3, 1, 1);
    features.add_named<MaxPool2d>("12", 3, 2);

    classifier.add_named<Dropout>("0");
    classifier.add_named<Linear>("1", 6 * 6 * 256, 4096,
                                 LinearOptions{.activation = kRelu, .image = {6, 6, 256}});
    classifier.add_named<Dropout>("3");
    classifier.add_named<Linear>("4", 4096, 4096, LinearOptions{.activation = kRelu});
    classifier.add_named<Linear>("6", 4096, options.classes);
    register_module("features", features);
    register_module("classifier", classifier);
  }

  Tensor forward(const Tensor& x) override { return classifier(flatten(pool(features(x)))); }

 private:
  Sequential features, classifier;
  AdaptiveAvgPool2d pool{6};
};

}  // namespace

std::unique_ptr<Module> make_alexnet(const ModelOptions& options) {
  return std::make_unique<AlexNet>(options);
}

}  // namespace athanor::nn
