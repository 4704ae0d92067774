#include "nn/models/model.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "nn/models/cifarnet.h"
#include "nn/models/convnext.h"
#include "nn/models/densenet.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/regnet.h"
#include "nn/models/resnet.h"
#include "nn/models/vision_transformer.h"
#include "tensor/base/nearest.h"
#include "tensor/base/printable.h"

namespace athanor::nn {

// Those without options of their own are defined in the source of their name, and need no header.
std::unique_ptr<Module> make_alexnet(const ModelOptions& options);
std::unique_ptr<Module> make_digits_cnn(const ModelOptions& options);
std::unique_ptr<Module> make_lenet5(const ModelOptions& options);
std::unique_ptr<Module> make_vgg11_bn(const ModelOptions& options);

namespace {

struct Recipe {
  std::string name;
  ModelOptions defaults;
  std::int64_t smallest_image;
  ModelFactory make;
};

constexpr ModelOptions kImageNet{1000, 3, 224};
constexpr ModelOptions kCifar{10, 3, 32};

template <class M, const auto&... more> std::unique_ptr<Module> make(const ModelOptions& options) {
  return std::make_unique<M>(options, more...);
}

template <const ResNetConfig& config> std::unique_ptr<Module> make_resnet(const ModelOptions& options) {
  return std::make_unique<ResNet>(config, options);
}

template <bool large, const auto&... more>
std::unique_ptr<Module> make_mobilenet_v3(const ModelOptions& options) {
  return std::make_unique<MobileNetV3>(large, options, more...);
}

/// The library's models, a new one being a row here, then those of the program.
std::vector<Recipe>& recipes() {
  static std::vector<Recipe> all{
      {"lenet5", {10, 1, 28}, 12, make_lenet5},
      {"alexnet", kImageNet, 63, make_alexnet},
      {"vgg11_bn", kImageNet, 32, make_vgg11_bn},
      {"resnet18", kImageNet, 1, make_resnet<kResNet18>},
      {"resnet34", kImageNet, 1, make_resnet<kResNet34>},
      {"resnet50", kImageNet, 1, make_resnet<kResNet50>},
      {"resnet101", kImageNet, 1, make_resnet<kResNet101>},
      {"resnet152", kImageNet, 1, make_resnet<kResNet152>},
      {"resnet50d", kImageNet, 1, make_resnet<kResNet50D>},
      {"wide_resnet50_2", kImageNet, 1, make_resnet<kWideResNet50>},
      {"resnext50_32x4d", kImageNet, 1, make_resnet<kResNeXt50>},
      {"resnet18_cifar", kCifar, 1, make_resnet<kResNet18Cifar>},
      {"resnet34_cifar", kCifar, 1, make_resnet<kResNet34Cifar>},
      {"resnet50_cifar", kCifar, 1, make_resnet<kResNet50Cifar>},
      {"resnet20", kCifar, 1, make_resnet<kResNet20>},
      {"resnet56", kCifar, 1, make_resnet<kResNet56>},
      {"digits_cnn", {10, 1, 8}, 4, make_digits_cnn},
      {"cifarnet", kCifar, 25, make<CifarNet>},
      {"mobilenet_v2", kImageNet, 1, make<MobileNetV2>},
      {"mobilenet_v2_050", kImageNet, 1, make<MobileNetV2, kMobileNetV2Width050>},
      {"mobilenet_v2_140", kImageNet, 1, make<MobileNetV2, kMobileNetV2Width140>},
      {"mobilenet_v3_large", kImageNet, 1, make_mobilenet_v3<true>},
      {"mobilenet_v3_small", kImageNet, 1, make_mobilenet_v3<false>},
      {"mobilenet_v3_large_075", kImageNet, 1, make_mobilenet_v3<true, kMobileNetV3Width075>},
      {"mobilenet_v3_small_075", kImageNet, 1, make_mobilenet_v3<false, kMobileNetV3Width075>},
      {"efficientnet_b0", kImageNet, 1, make<EfficientNet>},
      {"efficientnet_b1", {1000, 3, 240}, 1, make<EfficientNet, kEfficientNetB1>},
      {"efficientnet_b2", {1000, 3, 288}, 1, make<EfficientNet, kEfficientNetB2>},
      {"efficientnet_b3", {1000, 3, 300}, 1, make<EfficientNet, kEfficientNetB3>},
      {"efficientnet_b4", {1000, 3, 380}, 1, make<EfficientNet, kEfficientNetB4>},
      {"regnet_y_400mf", kImageNet, 1, make<RegNet, kRegNetY400MF>},
      {"regnet_y_1_6gf", kImageNet, 1, make<RegNet, kRegNetY1600MF>},
      {"densenet121", kImageNet, 29, make<DenseNet>},
      {"convnext_tiny", kImageNet, 32, make<ConvNeXt>},
      {"convnext_small", kImageNet, 32, make<ConvNeXt, kConvNeXtSmall>},
      {"convnext_base", kImageNet, 32, make<ConvNeXt, kConvNeXtBase>},
      {"vit_tiny", kImageNet, 16, make<VisionTransformer, kVitTiny>},
      {"vit_s_16", kImageNet, 16, make<VisionTransformer, kVitS16>},
      {"vit_b_16", kImageNet, 16, make<VisionTransformer, kVitB16>},
  };
  return all;
}

const Recipe& recipe_of(std::string_view name) {
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
  }
  const std::vector<std::string> names = model_names();
  std::string all;
  for (const std::string& known : names) all += " " + known;
  detail::fail<>("model: name must be one of{}, but got '{}'{}", all, name, did_you_mean_model(name, names));
}

/// How timm's names of our models begin, where they differ.
constexpr std::pair<std::string_view, std::string_view> kTimm[] = {
    {"mobilenetv2_100", "mobilenet_v2"},
    {"mobilenetv2_050", "mobilenet_v2_050"},
    {"mobilenetv2_140", "mobilenet_v2_140"},
    {"mobilenetv3_large_075", "mobilenet_v3_large_075"},
    {"mobilenetv3_small_075", "mobilenet_v3_small_075"},
    {"mobilenetv3_large", "mobilenet_v3_large"},
    {"mobilenetv3_small", "mobilenet_v3_small"},
    {"vit_base_patch16", "vit_b_16"},
    {"deit_base_patch16", "vit_b_16"},
    {"vit_tiny_patch16", "vit_tiny"},
    {"deit_tiny_patch16", "vit_tiny"},
    {"vit_small_patch16", "vit_s_16"},
    {"deit_small_patch16", "vit_s_16"},
    {"regnety_004", "regnet_y_400mf"},
    {"regnety_016", "regnet_y_1_6gf"},
    {"resnet50_d", "resnet50d"},
};

/// Our name of a model of timm's; empty if there is none. What follows the name is a variant ("resnet18d") or
/// says how it was trained ("convnext_tiny.fb_in1k").
std::string_view name_in_timm(std::string_view theirs, std::span<const std::string> models) {
  if (theirs.starts_with("tf_")) theirs.remove_prefix(3);  // TensorFlow's padding
  for (const auto& [begin, ours] : kTimm)
    if (theirs.starts_with(begin)) return ours;
  std::string_view longest;
  for (const std::string_view ours : models) {
    const bool begins = theirs.starts_with(ours) && theirs.size() > ours.size() &&
                        std::isdigit(static_cast<unsigned char>(theirs[ours.size()])) == 0;
    if (begins && ours.size() > longest.size()) longest = ours;
  }
  return longest;
}

}  // namespace

std::string did_you_mean_model(std::string_view name, std::span<const std::string> models) {
  // Of "google/vit-base-patch16-224", as on Hugging Face, what is behind the account.
  std::string theirs(name.substr(name.rfind('/') + 1));
  std::replace(theirs.begin(), theirs.end(), '-', '_');
  const std::string_view ours = name_in_timm(theirs, models);
  const bool has = std::find(models.begin(), models.end(), ours) != models.end();
  return did_you_mean(has ? ours : theirs, models);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

void register_model(const std::string& name, ModelFactory make, const ModelOptions& defaults,
                    std::int64_t smallest_image) {
  ATH_CHECK(is_name(name, "_-"),
            "register_model: a name must consist of letters, digits, '_' and '-', but is '{}'", name);
  for (const Recipe& recipe : recipes())
    ATH_CHECK(recipe.name != name, "register_model: '{}' must be a new name, but is already registered",
              name);
  ATH_CHECK(make != nullptr, "register_model: '{}' must have a factory", name);
  recipes().push_back({name, defaults, smallest_image, std::move(make)});
}

ModelOptions model_options(std::string_view name, const ModelOptions& options) {
  const Recipe& recipe = recipe_of(name);
  const std::int64_t least = std::min(options.image_size, options.image_width);
  ATH_CHECK(options.classes >= 0 && options.in_channels >= 0 && least >= 0,
            "{}: options must be >= 0, but got {} classes, {} channels, {} pixels", name, options.classes,
            options.in_channels, least);
  const auto or_default = [](std::int64_t asked, std::int64_t standard) { return asked ? asked : standard; };
  ModelOptions full{or_default(options.classes, recipe.defaults.classes),
                    or_default(options.in_channels, recipe.defaults.in_channels),
                    or_default(options.image_size, recipe.defaults.image_size)};
  full.image_width = or_default(options.image_width, full.image_size);
  const std::int64_t shorter = std::min(full.image_size, full.image_width);
  ATH_CHECK(shorter >= recipe.smallest_image, "{}: images must be at least {} pixels per side, but got {}",
            name, recipe.smallest_image, shorter);
  return full;
}

std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options) {
  return recipe_of(name).make(model_options(name, options));
}

std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, std::uint64_t seed) {
  std::unique_ptr<Module> model = make_model(name, options);
  model->initialize(seed);
  return model;
}

}  // namespace athanor::nn
