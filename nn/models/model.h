#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// Sizes of a model. 0 means the size of the published model.
struct ModelOptions {
  std::int64_t classes = 0;
  std::int64_t in_channels = 0;
  std::int64_t image_size = 0;   ///< pixels along each side, or the height of images that are not square
  std::int64_t image_width = 0;  ///< 0: image_size

  std::int64_t width() const { return image_width > 0 ? image_width : image_size; }
};

/// Makes a model without values; all options are set.
using ModelFactory = std::function<std::unique_ptr<Module>(const ModelOptions&)>;

/// Adds a custom network to make_model() and --model; call it at the beginning of main(). `defaults` replace
/// options that are 0; images under `smallest_image` pixels a side are refused. Throws ArgumentError on a
/// name that is taken or not of letters, digits, '_' and '-'.
///
///     nn::register_model("my_net", [](const nn::ModelOptions& options) {
///       return std::make_unique<MyNet>(options.in_channels, options.classes);
///     });
void register_model(const std::string& name, ModelFactory make, const ModelOptions& defaults = {10, 3, 32},
                    std::int64_t smallest_image = 1);

/// The library's models (docs/reference/models.md), then those registered.
std::vector<std::string> model_names();

/// "; did you mean 'resnet18'?", or "": of these models, the one that timm calls `name`, such as resnet18d or
/// vit_base_patch16_224, else the one with the nearest name.
std::string did_you_mean_model(std::string_view name, std::span<const std::string> models);

/// The options with zeros replaced by the model's defaults. Throws ArgumentError as make_model does.
ModelOptions model_options(std::string_view name, const ModelOptions& options = {});

/// A model without values: call load_state_dict() before its first forward pass. Throws as the next one.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options);
/// A model with initial values from `seed`: images [N, H, W, C] in, logits [N, classes] out. Throws
/// ArgumentError on an unknown name, suggesting the nearest, and on an image too small for the model.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, std::uint64_t seed);

}  // namespace athanor::nn
