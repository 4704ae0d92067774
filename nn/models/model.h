#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// What a model is built for. 0 means what the model was published for.
struct ModelOptions {
  std::int64_t classes = 0;
  std::int64_t in_channels = 0;
  std::int64_t image_size = 0;  ///< pixels along each side
};

/// lenet5 alexnet vgg11_bn resnet18 resnet34 resnet50 (224 x 224, 1,000 classes) resnet18_cifar
/// resnet34_cifar resnet50_cifar resnet20 resnet56 cifarnet (32 x 32, 10 classes) digits_cnn (8 x 8); and
/// where a program is linked with athanor::athanor or athanor_ops, mobilenet_v2 mobilenet_v3_large
/// mobilenet_v3_small efficientnet_b0 convnext_tiny vit_tiny vit_b_16 (224 x 224, 1,000 classes).
std::vector<std::string> model_names();

/// The options with zeros replaced by the model's own. Throws ArgumentError as make_model does.
ModelOptions model_options(std::string_view name, const ModelOptions& options = {});

/// A model with initial values from `seed`: images [N, H, W, C] in, logits [N, classes] out. Throws
/// ArgumentError on an unknown name, naming the nearest, and on an image too small for the model.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, std::uint64_t seed);

}  // namespace athanor::nn
