#include <fstream>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "nn/dropout.h"
#include "nn/models/convnext.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/resnet.h"
#include "nn/models/unet.h"
#include "nn/models/vision_transformer.h"
#include "nn/stochastic_depth.h"
#include "nn/torch/torch_layout.h"
#include "tests/support/ops.h"

// What torchvision's models compute in f64, from weights that both sides make:
// tests/golden/make_model_goldens.py says how, and what the numbers here are.

namespace athanor::nn::model_golden_test {

/// Of a value's norm. The golden files are from an x86-64 CPU; others sum in another order. A change of the
/// weights in their last bit moves mobilenet_v3_large's gradients by 7e-10, those of the others by 4e-13.
double tolerance_of([[maybe_unused]] std::string_view model) {
#if !defined(__x86_64__)
  if (model == "mobilenet_v3_large") return 2e-9;
#endif
  return 1e-10;
}
/// A shift that a norm follows has no gradient: what is left is rounding, and not the peer's.
constexpr double kRounding = 1e-12;
constexpr std::int64_t kClasses = 7;

/// Number i of a tensor, in [-1, 1).
class Numbers {
 public:
  explicit Numbers(const std::string& name)
      : first_(std::uint64_t{
                   crc32(0, reinterpret_cast<const Bytef*>(name.data()), static_cast<uInt>(name.size()))}
               << 32) {}
  double operator()(std::int64_t i) const {
    std::uint64_t z = (first_ + static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    return 2 * (static_cast<double>(z >> 11) / 9007199254740992.0) - 1;
  }

 private:
  std::uint64_t first_;
};

Tensor tensor_of(const Shape& shape, const std::function<double(std::int64_t)>& value) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = value(i);
  return x;
}

Tensor weights_of(const std::string& name, const Shape& shape) {
  const Numbers u(name);
  if (shape.rank() > 1) {
    const double bound =
        std::sqrt(6.0 / (static_cast<double>(shape.numel()) / static_cast<double>(shape[0])));
    return tensor_of(shape, [=](std::int64_t i) { return u(i) * bound; });
  }
  const bool about_one = name.ends_with("weight") || name.ends_with("running_var");
  return tensor_of(shape, [=](std::int64_t i) { return about_one ? 1 + 0.5 * u(i) : 0.3 * u(i); });
}

Shape shape_of(const nlohmann::json& sizes) {
  Shape shape;
  for (const auto& size : sizes) shape.push_back(size.get<std::int64_t>());
  return shape;
}

/// x, dense and f64, against its product with numbers, and its norm.
void expect_digest(const std::string& name, const Tensor& x, const nlohmann::json& expected,
                   double tolerance) {
  ASSERT_TRUE(x.defined() && x.dtype() == DType::f64 && x.is_contiguous()) << name;
  const Numbers u("dot " + name);
  double dot = 0, squares = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = x.data<double>()[i];
    dot += value * u(i);
    squares += value * value;
  }
  const double norm = expected[1].get<double>();
  if (norm < kRounding) {
    EXPECT_LT(std::sqrt(squares), kRounding) << name;
    return;
  }
  EXPECT_NEAR(dot, expected[0].get<double>(), tolerance * norm) << name;
  EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << name;
}

using Make = std::function<std::unique_ptr<Module>(const ModelOptions&, const nlohmann::json&)>;

/// A model without dropout and stochastic depth; and as it comes, where it then has some.
struct Golden {
  const char* name;
  Make make;
  Make make_default = {};
};

template <class M, class Options> Golden golden(const char* name, const Options& plain) {
  return {name, [=](const ModelOptions& size, const auto&) { return std::make_unique<M>(size, plain); },
          [](const ModelOptions& size, const auto&) { return std::make_unique<M>(size); }};
}

Golden mobilenet_v3(const char* name, bool large) {
  return {name,
          [=](const ModelOptions& size, const auto&) {
            return std::make_unique<MobileNetV3>(large, size, MobileNetOptions{.dropout = 0});
          },
          [=](const ModelOptions& size, const auto&) { return std::make_unique<MobileNetV3>(large, size); }};
}

std::unique_ptr<Module> unet(const ModelOptions& size, const nlohmann::json& options) {
  return std::make_unique<UNet>(size,
                                UNetOptions{options["depth"].get<int>(), options["width"].get<std::int64_t>(),
                                            options["bilinear"].get<bool>()});
}

std::vector<Golden> goldens() {
  return {{"resnet18",
           [](const ModelOptions& size, const auto&) { return std::make_unique<ResNet>(kResNet18, size); }},
          golden<MobileNetV2>("mobilenet_v2", MobileNetOptions{.dropout = 0}),
          mobilenet_v3("mobilenet_v3_large", true),
          mobilenet_v3("mobilenet_v3_small", false),
          golden<EfficientNet>("efficientnet_b0", EfficientNetOptions{.dropout = 0, .stochastic_depth = 0}),
          golden<ConvNeXt>("convnext_tiny", ConvNeXtOptions{.stochastic_depth = 0}),
          {"vit_tiny", [](const ModelOptions& size,
                          const auto&) { return std::make_unique<VisionTransformer>(size, kVitTiny); }},
          {"unet", unet},
          {"unet_bilinear", unet}};
}

std::vector<Golden> goldens_with_dropout() {
  std::vector<Golden> all = goldens();
  std::erase_if(all, [](const Golden& golden) { return !golden.make_default; });
  return all;
}

nlohmann::json read(const std::string& name) {
  std::ifstream in(std::string(ATHANOR_GOLDEN_DIR) + "/models/" + name + ".json");
  return nlohmann::json::parse(in);
}

class ModelGolden : public testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(All, ModelGolden, testing::ValuesIn(goldens()),
                         [](const auto& test) { return std::string(test.param.name); });
class ModelGoldenWithDropout : public testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(All, ModelGoldenWithDropout, testing::ValuesIn(goldens_with_dropout()),
                         [](const auto& test) { return std::string(test.param.name); });

void run(Module& model, const nlohmann::json& file, const char* mode, double tolerance) {
  const bool training = mode == std::string("train");
  StateDict weights;
  for (const auto& [name, entry] : file["tensors"].items())
    weights.set(name, weights_of(name, shape_of(entry["shape"])));
  model.load_state_dict(from_torch_layout(model, weights));
  model.train(training);

  const Tensor x = tensor_of(shape_of(file["input"]), Numbers("x"));
  require_grad(x);
  const Tensor y = model(x);
  backward(y, tensor_of(y.shape(), Numbers("dy")));

  const nlohmann::json& expected = file[mode];
  if (y.rank() == 2) {
    ASSERT_EQ(static_cast<std::size_t>(y.numel()), expected["y"].size());
    const std::vector<double> logits = y.to_vector();
    double largest = 0;
    for (const double logit : logits) largest = std::max(largest, std::abs(logit));
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(logits[i], expected["y"][i].get<double>(), tolerance * largest);
  } else {
    expect_digest("y", y.detach(), expected["y"], tolerance);
  }
  expect_digest("x", grad_of(x), expected["dx"], tolerance);
  StateDict gradients, buffers;
  for (const Parameter& parameter : model.parameters()) {
    gradients.set(parameter.name, grad_of(parameter.tensor));
    zero_grad(parameter.tensor);
  }
  for (const NamedTensor& buffer : model.buffers()) buffers.set(buffer.name, buffer.tensor);
  for (const StateDict::Entry& entry : to_torch_layout(model, gradients)) {
    if (!gradients.contains(entry.name)) continue;  // counts of batches
    expect_digest(entry.name, std::get<Tensor>(entry.value), file["tensors"][entry.name][mode], tolerance);
  }
  if (!training) return;
  for (const StateDict::Entry& entry : buffers)
    expect_digest(entry.name, std::get<Tensor>(entry.value), file["tensors"][entry.name]["moved"], tolerance);
}

TEST_P(ModelGolden, LogitsGradientsAndStatisticsMatchThePeer) {
  const nlohmann::json file = read(GetParam().name);
  const std::int64_t side = file["input"][1].get<std::int64_t>();
  const auto model = GetParam().make({kClasses, 3, side}, file["options"]);
  model->to(DType::f64);
  for (const char* mode : {"train", "eval"}) {
    SCOPED_TRACE(mode);
    run(*model, file, mode, tolerance_of(GetParam().name));
  }
}

TEST_P(ModelGoldenWithDropout, DropsWithThePeersProbabilities) {
  const nlohmann::json file = read(GetParam().name);
  ASSERT_FALSE(file["drops"].empty());
  const auto model = GetParam().make_default({1000, 3, 224}, {});
  std::map<std::string, double> drops;
  for (const NamedModule& module : model->modules()) {
    double p = 0;
    if (const auto* dropout = dynamic_cast<const Dropout*>(module.module)) p = dropout->p();
    if (const auto* depth = dynamic_cast<const StochasticDepth*>(module.module)) p = depth->p();
    if (p > 0) drops[module.name] = p;
  }
  EXPECT_EQ(drops.size(), file["drops"].size());
  for (const auto& [name, p] : file["drops"].items()) EXPECT_NEAR(drops[name], p.get<double>(), 1e-7) << name;
}

}  // namespace athanor::nn::model_golden_test
