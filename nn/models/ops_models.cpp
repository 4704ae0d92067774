#include <iterator>

#include "nn/models/convnext.h"
#include "nn/models/detail/model_table.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/vision_transformer.h"

namespace athanor::nn {
namespace {

template <bool kLarge> std::unique_ptr<Module> mobilenet_v3(const ModelOptions& options) {
  return std::make_unique<MobileNetV3>(kLarge, options);
}

template <const VisionTransformerOptions& more>
std::unique_ptr<Module> vision_transformer(const ModelOptions& options) {
  return std::make_unique<VisionTransformer>(options, more);
}

constexpr ModelRecipe kRecipes[] = {
    {"mobilenet_v2", kImageNet, 1, make<MobileNetV2>},
    {"mobilenet_v3_large", kImageNet, 1, mobilenet_v3<true>},
    {"mobilenet_v3_small", kImageNet, 1, mobilenet_v3<false>},
    {"efficientnet_b0", kImageNet, 1, make<EfficientNet>},
    {"convnext_tiny", kImageNet, 32, make<ConvNeXt>},
    {"vit_tiny", kImageNet, 16, vision_transformer<kVitTiny>},
    {"vit_b_16", kImageNet, 16, vision_transformer<kVitB16>},
};

}  // namespace
}  // namespace athanor::nn

const athanor::nn::ModelTable athanor_ops_models{athanor::nn::kRecipes, std::size(athanor::nn::kRecipes)};
