#pragma once

#include <cstdint>
#include <functional>
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

/// Makes a model that has no values yet; all options are set.
using ModelFactory = std::function<std::unique_ptr<Module>(const ModelOptions&)>;

/// Has make_model(), and with it --model of a program, know a network of the program's own. Called at the
/// beginning of main(). `defaults` stand for options that are 0; smaller images than `smallest_image` pixels
/// a side are refused. Throws ArgumentError where the name is taken, or not of letters, digits, '_' and '-'.
///
///     nn::register_model("my_net", [](const nn::ModelOptions& options) {
///       return std::make_unique<MyNet>(options.in_channels, options.classes);
///     });
void register_model(const std::string& name, ModelFactory make, const ModelOptions& defaults = {10, 3, 32},
                    std::int64_t smallest_image = 1);

/// Those of the library, and then those that register_model() has been given: lenet5 alexnet vgg11_bn
/// resnet18 resnet34 resnet50 (224 x 224, 1,000 classes) resnet18_cifar resnet34_cifar resnet50_cifar
/// resnet20 resnet56 (32 x 32, 10 classes) digits_cnn (8 x 8); and, where a program is linked with
/// athanor::athanor, cifarnet (32 x 32), mobilenet_v2 mobilenet_v3_large mobilenet_v3_small efficientnet_b0
/// convnext_tiny vit_tiny vit_b_16 (224 x 224, 1,000 classes).
std::vector<std::string> model_names();

/// The options with zeros replaced by the model's own. Throws ArgumentError as make_model does.
ModelOptions model_options(std::string_view name, const ModelOptions& options = {});

/// A model without values: load_state_dict() comes before its first call. Throws as the one below.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options);
/// A model with initial values from `seed`: images [N, H, W, C] in, logits [N, classes] out. Throws
/// ArgumentError on an unknown name, naming the nearest, and on an image too small for the model.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, std::uint64_t seed);

}  // namespace athanor::nn
