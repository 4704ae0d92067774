#include "bench/peers/athanor/networks.h"

#include <cmath>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "bench/peers/athanor/worker.h"
#include "nn/models/convnext.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/model.h"
#include "nn/torch/torch_layout.h"
#include "trainer/checkpoints/state_file.h"
#include "trainer/inference/model_file.h"

namespace athanor::peers {
namespace {

/// As large as keeps the variance of activations, by PyTorch's shapes; norms about 1, and their shifts small.
Tensor made_up_weight(const std::string& name, const Shape& shape, std::uint32_t seed) {
  const Tensor values = made_up(shape, seed);
  if (name.ends_with("layer_scale")) return affine(values, 0.3, 1);
  if (shape.rank() > 1) {
    const auto fan_in = static_cast<double>(values.numel()) / static_cast<double>(shape[0]);
    return affine(values, std::sqrt(6 / fan_in), 0);
  }
  const bool is_scale = name.ends_with("running_var") || name.ends_with(".weight");
  return is_scale ? affine(values, 0.3, 1) : affine(values, 0.1, 0);
}

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all{{"lenet5", 64, 100},
                                         {"lenet5", 512, 20},
                                         {"resnet20", 128, 5},
                                         {"resnet18_cifar", 64, 2},
                                         {"resnet50", 16, 2},
                                         {"mobilenet_v2", 16, 1},
                                         {"cifarnet", 500, 1},
                                         // One of each family, with batches for a short comparison of all.
                                         {"resnet20", 64, 1},
                                         {"resnet18_cifar", 16, 1},
                                         {"resnet50", 2, 1},
                                         {"mobilenet_v2", 8, 1},
                                         {"mobilenet_v3_small", 16, 1},
                                         {"efficientnet_b0", 4, 1},
                                         {"regnet_y_400mf", 8, 1},
                                         {"densenet121", 2, 1},
                                         {"convnext_tiny", 2, 1},
                                         {"vit_tiny", 4, 1}};
  return all;
}

std::shared_ptr<nn::Module> make_network(const std::string& model) {
  const nn::MobileNetOptions no_dropout{.dropout = 0};
  if (model == "mobilenet_v2") return std::make_shared<nn::MobileNetV2>(nn::model_options(model), no_dropout);
  if (model == "mobilenet_v3_small")
    return std::make_shared<nn::MobileNetV3>(false, nn::model_options(model), no_dropout);
  if (model == "efficientnet_b0") {
    const nn::EfficientNetOptions plain{.dropout = 0, .stochastic_depth = 0};
    return std::make_shared<nn::EfficientNet>(nn::model_options(model), plain);
  }
  if (model == "convnext_tiny") {
    const nn::ConvNeXtOptions plain{.stochastic_depth = 0};
    return std::make_shared<nn::ConvNeXt>(nn::model_options(model), plain);
  }
  return nn::make_model(model, {});
}

void save_network(const std::string& model, const std::filesystem::path& file) {
  const auto network = make_network(model);
  const StateDict fresh = nn::to_torch_layout(*network, network->state_dict());
  StateDict weights;
  std::uint32_t seed = 0;
  for (const std::string& name : fresh.names()) {
    if (name.ends_with("num_batches_tracked")) continue;
    weights.set(name, made_up_weight(name, fresh.tensor(name).shape(), seed));
    seed += 1000;
  }
  network->load_state_dict(nn::from_torch_layout(*network, weights));
  const nn::ModelOptions options = nn::model_options(model);
  const auto channels = static_cast<std::size_t>(options.in_channels);
  ModelInfo info;
  info.program = "peers";
  info.model = model;
  info.images = {options.image_size, options.image_size, options.in_channels, options.classes};
  info.pixels = {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.25)};
  save_model(file, info, network->state_dict());
}

Tensor made_up_images(const ImageSpec& spec, std::int64_t batch) {
  return clone(permute(made_up({batch, spec.channels, spec.height, spec.width}, 7), {0, 2, 3, 1}));
}

}  // namespace athanor::peers
