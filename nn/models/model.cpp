#include "nn/models/model.h"

#include <span>

#include "nn/models/alexnet.h"
#include "nn/models/cifarnet.h"
#include "nn/models/detail/model_table.h"
#include "nn/models/digits_cnn.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "nn/models/vgg.h"
#include "tensor/nearest.h"

namespace athanor::nn {
namespace {

constexpr ModelOptions kCifar{10, 3, 32};

template <const ResNetConfig& config> std::unique_ptr<Module> make_resnet(const ModelOptions& options) {
  return std::make_unique<ResNet>(config, options);
}

constexpr ModelRecipe kRecipes[] = {
    {"lenet5", {10, 1, 28}, 12, make<LeNet5>},
    {"alexnet", kImageNet, 63, make<AlexNet>},
    {"vgg11_bn", kImageNet, 32, make<Vgg11Bn>},
    {"resnet18", kImageNet, 1, make_resnet<kResNet18>},
    {"resnet34", kImageNet, 1, make_resnet<kResNet34>},
    {"resnet50", kImageNet, 1, make_resnet<kResNet50>},
    {"resnet18_cifar", kCifar, 1, make_resnet<kResNet18Cifar>},
    {"resnet34_cifar", kCifar, 1, make_resnet<kResNet34Cifar>},
    {"resnet50_cifar", kCifar, 1, make_resnet<kResNet50Cifar>},
    {"resnet20", kCifar, 1, make_resnet<kResNet20>},
    {"resnet56", kCifar, 1, make_resnet<kResNet56>},
    {"cifarnet", kCifar, 25, make<CifarNet>},
    {"digits_cnn", {10, 1, 8}, 4, make<DigitsCnn>},
};

std::span<const ModelRecipe> recipes_of_ops() {
  if (&athanor_ops_models == nullptr) return {};
  return {athanor_ops_models.recipes, athanor_ops_models.size};
}

const ModelRecipe& recipe_of(std::string_view name) {
  for (const std::span<const ModelRecipe> recipes :
       {std::span<const ModelRecipe>(kRecipes), recipes_of_ops()}) {
    for (const ModelRecipe& recipe : recipes) {
      if (recipe.name == name) return recipe;
    }
  }
  const std::vector<std::string> names = model_names();
  std::string all;
  for (const std::string& known : names) all += " " + known;
  detail::fail<>("model: name must be one of{}, but got '{}'{}", all, name, did_you_mean(name, names));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRecipe& recipe : kRecipes) names.emplace_back(recipe.name);
  for (const ModelRecipe& recipe : recipes_of_ops()) names.emplace_back(recipe.name);
  return names;
}

ModelOptions model_options(std::string_view name, const ModelOptions& options) {
  const ModelRecipe& recipe = recipe_of(name);
  ATH_CHECK(options.classes >= 0 && options.in_channels >= 0 && options.image_size >= 0,
            "{}: options must be >= 0, but got {} classes, {} channels, {} pixels", name, options.classes,
            options.in_channels, options.image_size);
  const auto or_default = [](std::int64_t asked, std::int64_t standard) { return asked ? asked : standard; };
  const ModelOptions full{or_default(options.classes, recipe.defaults.classes),
                          or_default(options.in_channels, recipe.defaults.in_channels),
                          or_default(options.image_size, recipe.defaults.image_size)};
  ATH_CHECK(full.image_size >= recipe.smallest_image,
            "{}: images must be at least {} pixels a side, but got {}", name, recipe.smallest_image,
            full.image_size);
  return full;
}

std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, std::uint64_t seed) {
  const ModelOptions full = model_options(name, options);
  std::unique_ptr<Module> model = recipe_of(name).make(full);
  model->initialize(seed);
  return model;
}

}  // namespace athanor::nn
