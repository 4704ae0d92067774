// One image through a network that is frozen for inference. bench/peers/pytorch/infer.py is the same in
// PyTorch, ONNX Runtime and OpenVINO.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "bench/peers/athanor/worker.h"
#include "nn/models/model.h"
#include "nn/torch_layout.h"
#include "trainer/predictor.h"

namespace athanor::peers {
namespace {

struct Network {
  const char *name, *model;
  ImageSpec images;
};
const Network kNetworks[] = {{"lenet5", "lenet5", {28, 28, 1, 10}},
                             {"resnet20", "resnet20", {32, 32, 3, 10}},
                             {"resnet18_cifar", "resnet18_cifar", {32, 32, 3, 10}}};

/// As large as keeps the variance of activations, by PyTorch's shapes; norms about 1, and their shifts small.
Tensor made_up_weight(const std::string& name, const Shape& shape, std::uint32_t seed) {
  const Tensor values = made_up(shape, seed);
  if (shape.rank() > 1) {
    const auto fan_in = static_cast<double>(values.numel() / shape[0]);
    return affine(values, std::sqrt(6 / fan_in), 0);
  }
  const bool is_scale = name.ends_with("running_var") || (name.ends_with(".weight"));
  return is_scale ? affine(values, 0.3, 1) : affine(values, 0.1, 0);
}

std::unique_ptr<nn::Module> network_of(const Network& network) {
  auto made = nn::make_model(network.model, {}, 0);
  const StateDict fresh = nn::to_torch_layout(*made, made->state_dict());
  std::vector<std::string> names = fresh.names();
  std::erase_if(names, [](const std::string& name) { return name.ends_with("num_batches_tracked"); });
  std::sort(names.begin(), names.end());
  StateDict weights;
  for (std::size_t i = 0; i < names.size(); ++i)
    weights.set(names[i], made_up_weight(names[i], fresh.tensor(names[i]).shape(),
                                         static_cast<std::uint32_t>(1000 * i)));
  made->load_state_dict(nn::from_torch_layout(*made, weights));
  made->eval();
  return made;
}

/// An image whose pixels PyTorch has in the order of channels, rows, columns.
Tensor image_of(const ImageSpec& spec) {
  const Tensor planes = made_up({spec.channels, spec.height, spec.width}, 7);
  const Tensor image = Tensor::empty({1, spec.height, spec.width, spec.channels});
  const std::int64_t pixels = spec.height * spec.width;
  for (std::int64_t c = 0; c < spec.channels; ++c) {
    for (std::int64_t i = 0; i < pixels; ++i)
      image.data<float>()[i * spec.channels + c] = planes.data<float>()[c * pixels + i];
  }
  return image;
}

/// Logits in parts of the largest.
std::vector<double> check(const Tensor& logits) {
  std::vector<double> values = logits.to_vector();
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  for (double& value : values) value /= largest;
  return values;
}

Ready prepare_packed(const Network& network) {
  ModelInfo info;
  info.images = network.images;
  const auto channels = static_cast<std::size_t>(info.images.channels);
  info.pixels = {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.25)};
  const auto predictor = std::make_shared<const Predictor>(network_of(network), info);
  const Tensor image = image_of(network.images);
  return {[predictor, image] { predictor->logits(image); }, check(predictor->logits(image))};
}

/// As a training's validation computes it.
Ready prepare_plain(const Network& network) {
  const std::shared_ptr<nn::Module> module = network_of(network);
  const Tensor image = image_of(network.images);
  const auto run = [module, image] {
    const InferenceMode inference;
    return (*module)(image);
  };
  return {[run] { run(); }, check(run())};
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor;
  std::vector<peers::PeerCase> cases;
  for (const peers::Network& network : peers::kNetworks) {
    cases.push_back({fmt::format("{}/f32/infer-b1", network.name), 0,
                     [&network] { return peers::prepare_packed(network); }});
    cases.push_back({fmt::format("{}/f32/unpacked-b1", network.name), 0,
                     [&network] { return peers::prepare_plain(network); }});
  }
  return peers::serve(cases);
}
