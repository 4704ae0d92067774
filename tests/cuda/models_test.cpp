#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "autograd/engine.h"
#include "kernels/on_device.h"
#include "nn/models/convnext.h"
#include "nn/models/densenet.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/regnet.h"
#include "nn/models/resnet.h"
#include "nn/models/unet.h"
#include "nn/models/vision_transformer.h"
#include "optim/step.h"
#include "tests/cuda/device.h"

// The models of athanor_ops, small, on the device against the CPU in f64: logits and the gradients of a step,
// with the same samples dropped.

namespace athanor::nn::models_test {

using ModelsOnDevice = test::DeviceTest;
using Make = std::function<std::unique_ptr<Module>()>;

struct Step {
  std::vector<double> logits;
  std::map<std::string, std::vector<double>> gradients;
};

Step step_of(const Make& make, Device device, const Shape& images) {
  const auto model = make();
  model->initialize(3);
  model->to(DType::f64);
  for (const Parameter& parameter : model->parameters()) {
    // Zero at first, which nothing gets past.
    const std::vector<double> values = parameter.tensor.detach().to_vector();
    const bool is_zero = std::ranges::all_of(values, [](double value) { return value == 0; });
    if (is_zero && parameter.name.ends_with("weight")) init::normal(parameter.tensor, {1, 2}, 0, 0.1);
  }
  model->to(device);
  const auto drawn = [&](const Shape& shape, std::uint64_t stream) {
    const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
    init::normal(x, {5, stream}, 0, 1);
    return x.to(device);
  };
  StepBuffer buffer(device, {.seed = 3});
  return on_device(device, [&](auto& context) {
    const BoundStep bound(context, buffer);
    const Tensor logits = (*model)(drawn(images, 1));
    backward(logits, drawn(logits.shape(), 2));
    Step step{logits.detach().to(kCpu).to_vector(), {}};
    for (const Parameter& parameter : model->parameters())
      step.gradients[parameter.name] = grad_of(parameter.tensor).to(kCpu).to_vector();
    return step;
  });
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / std::max(size, 1e-6));
}

void expect_equal_steps(const Make& make, const Shape& images) {
  const Step cpu = step_of(make, kCpu, images), device = step_of(make, test::device(), images);
  EXPECT_LT(distance(device.logits, cpu.logits), 1e-9);
  for (const auto& [name, gradient] : cpu.gradients)
    EXPECT_LT(distance(device.gradients.at(name), gradient), 1e-9) << name;
}

const ModelOptions kSize{3, 3, 32};

TEST_F(ModelsOnDevice, MobileNetV2) {
  expect_equal_steps([] { return std::make_unique<MobileNetV2>(kSize, MobileNetOptions{.width = 0.1}); },
                     {4, 32, 32, 3});
}

TEST_F(ModelsOnDevice, MobileNetV3) {
  expect_equal_steps(
      [] { return std::make_unique<MobileNetV3>(false, kSize, MobileNetOptions{.width = 0.1}); },
      {4, 32, 32, 3});
}

TEST_F(ModelsOnDevice, EfficientNet) {
  const EfficientNetOptions options{.width = 0.1, .depth = 0.5, .stochastic_depth = 0.5};
  expect_equal_steps([&] { return std::make_unique<EfficientNet>(kSize, options); }, {4, 32, 32, 3});
}

TEST_F(ModelsOnDevice, ResNetDWithGroups) {
  const ResNetConfig config{.blocks = {1, 1, 1, 0},
                            .width = 8,
                            .bottleneck = true,
                            .groups = 4,
                            .group_width = 16,
                            .variant_d = true};
  expect_equal_steps([&] { return std::make_unique<ResNet>(config, kSize); }, {4, 33, 32, 3});
}

TEST_F(ModelsOnDevice, RegNet) {
  const RegNetOptions options{{1, 1, 2, 1}, {8, 16, 16, 24}, 8};
  expect_equal_steps([&] { return std::make_unique<RegNet>(kSize, options); }, {4, 32, 32, 3});
}

TEST_F(ModelsOnDevice, DenseNet) {
  const DenseNetOptions options{.layers = {1, 2, 1, 2}, .growth = 4, .width = 8};
  expect_equal_steps([&] { return std::make_unique<DenseNet>(kSize, options); }, {4, 32, 32, 3});
}

TEST_F(ModelsOnDevice, ConvNeXt) {
  const ConvNeXtOptions options{
      .blocks = {1, 1, 2, 1}, .widths = {8, 8, 16, 16}, .layer_scale = 0.5, .stochastic_depth = 0.5};
  expect_equal_steps([&] { return std::make_unique<ConvNeXt>(kSize, options); }, {3, 32, 32, 3});
}

TEST_F(ModelsOnDevice, VisionTransformer) {
  const VisionTransformerOptions options{
      .patch = 8, .layers = 2, .heads = 2, .width = 16, .mlp = 32, .dropout = 0.1, .attention_dropout = 0.2};
  expect_equal_steps([&] { return std::make_unique<VisionTransformer>(kSize, options); }, {2, 32, 32, 3});
}

TEST_F(ModelsOnDevice, UNet) {
  for (const bool bilinear : {false, true}) {
    const UNetOptions options{.depth = 2, .width = 4, .bilinear = bilinear};
    expect_equal_steps([&] { return std::make_unique<UNet>(kSize, options); }, {2, 8, 12, 3});
  }
}

}  // namespace athanor::nn::models_test
