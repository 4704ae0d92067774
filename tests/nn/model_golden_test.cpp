#include <fstream>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "autograd/grad_mode.h"
#include "kernels/account/context.h"
#include "nn/dropout.h"
#include "nn/models/convnext.h"
#include "nn/models/densenet.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/regnet.h"
#include "nn/models/resnet.h"
#include "nn/models/unet.h"
#include "nn/models/vision_transformer.h"
#include "nn/stochastic_depth.h"
#include "nn/torch/torch_layout.h"
#include "tests/support/ops.h"

// What torchvision's and timm's models compute in f64, from weights that both sides make:
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

/// A tensor's product with numbers, and its norm.
struct Digest {
  double dot = 0, norm = 0;
};

Digest digest_of(const std::string& name, const Tensor& x) {
  const Numbers u("dot " + name);
  Digest digest;
  double squares = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = x.data<double>()[i];
    digest.dot += value * u(i);
    squares += value * value;
  }
  digest.norm = std::sqrt(squares);
  return digest;
}

void expect_near(const Digest& found, const nlohmann::json& expected, double tolerance,
                 const std::string& name) {
  const double norm = expected[1].get<double>();
  EXPECT_NEAR(found.dot, expected[0].get<double>(), tolerance * norm) << name;
  EXPECT_NEAR(found.norm, norm, tolerance * norm) << name;
}

/// x, dense and f64.
void expect_digest(const std::string& name, const Tensor& x, const nlohmann::json& expected,
                   double tolerance) {
  ASSERT_TRUE(x.defined() && x.dtype() == DType::f64 && x.is_contiguous()) << name;
  const Digest found = digest_of(name, x);
  if (expected[1].get<double>() < kRounding)
    EXPECT_LT(found.norm, kRounding) << name;
  else
    expect_near(found, expected, tolerance, name);
}

void expect_logits(const Tensor& y, const nlohmann::json& expected, double tolerance) {
  ASSERT_EQ(static_cast<std::size_t>(y.numel()), expected.size());
  const std::vector<double> logits = y.to_vector();
  double largest = 0;
  for (const auto& logit : expected) largest = std::max(largest, std::abs(logit.get<double>()));
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i].get<double>(), tolerance * largest);
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
          {"resnet_d",
           [](const ModelOptions& size, const auto&) {
             return std::make_unique<ResNet>(ResNetConfig{{1, 2, 1, 1}, 8, true, true, 1, 64, true}, size);
           }},
          {"resnext",
           [](const ModelOptions& size, const auto&) {
             return std::make_unique<ResNet>(ResNetConfig{{1, 2, 1, 1}, 64, true, true, 4, 8}, size);
           }},
          {"regnet",
           [](const ModelOptions& size, const auto&) {
             return std::make_unique<RegNet>(size, RegNetOptions{{1, 2, 1, 1}, {16, 24, 32, 48}, 8});
           }},
          {"densenet",
           [](const ModelOptions& size, const auto&) {
             return std::make_unique<DenseNet>(size, DenseNetOptions{{2, 3, 2, 2}, 8, 16});
           }},
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
    expect_logits(y, expected["y"], tolerance);
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

/// 0 of a module that drops nothing.
double drop_probability(const Module& module) {
  if (const auto* dropout = dynamic_cast<const Dropout*>(&module)) return dropout->p();
  if (const auto* depth = dynamic_cast<const StochasticDepth*>(&module)) return depth->p();
  return 0;
}

TEST_P(ModelGoldenWithDropout, DropsWithThePeersProbabilities) {
  const nlohmann::json file = read(GetParam().name);
  ASSERT_FALSE(file["drops"].empty());
  const auto model = GetParam().make_default({1000, 3, 224}, {});
  std::map<std::string, double> drops;
  for (const NamedModule& module : model->modules()) {
    if (const double p = drop_probability(*module.module); p > 0) drops[module.name] = p;
  }
  EXPECT_EQ(drops.size(), file["drops"].size());
  for (const auto& [name, p] : file["drops"].items()) EXPECT_NEAR(drops[name], p.get<double>(), 1e-7) << name;
}

// The table of models --------------------------------------------------------------------------------------

/// A model of the table without dropout and stochastic depth, which the peer's row is of.
std::unique_ptr<Module> undropped(const std::string& name, const ModelOptions& size) {
  const auto mobile = [](MobileNetOptions options) {
    options.dropout = 0;
    return options;
  };
  const auto efficient = [](EfficientNetOptions options) {
    options.dropout = options.stochastic_depth = 0;
    return options;
  };
  const auto next = [](ConvNeXtOptions options) {
    options.stochastic_depth = 0;
    return options;
  };
  if (name == "mobilenet_v2_050") return std::make_unique<MobileNetV2>(size, mobile(kMobileNetV2Width050));
  if (name == "mobilenet_v2_140") return std::make_unique<MobileNetV2>(size, mobile(kMobileNetV2Width140));
  if (name == "mobilenet_v3_large_075")
    return std::make_unique<MobileNetV3>(true, size, mobile(kMobileNetV3Width075));
  if (name == "mobilenet_v3_small_075")
    return std::make_unique<MobileNetV3>(false, size, mobile(kMobileNetV3Width075));
  if (name == "efficientnet_b1") return std::make_unique<EfficientNet>(size, efficient(kEfficientNetB1));
  if (name == "efficientnet_b2") return std::make_unique<EfficientNet>(size, efficient(kEfficientNetB2));
  if (name == "efficientnet_b3") return std::make_unique<EfficientNet>(size, efficient(kEfficientNetB3));
  if (name == "efficientnet_b4") return std::make_unique<EfficientNet>(size, efficient(kEfficientNetB4));
  if (name == "convnext_small") return std::make_unique<ConvNeXt>(size, next(kConvNeXtSmall));
  if (name == "convnext_base") return std::make_unique<ConvNeXt>(size, next(kConvNeXtBase));
  return make_model(name, size);
}

const nlohmann::json& zoo() {
  static const nlohmann::json rows = read("zoo");
  return rows;
}

/// The models whose row has results, too.
std::vector<std::string> computed() {
  std::vector<std::string> names;
  for (const auto& [name, row] : zoo().items())
    if (row.contains("train")) names.push_back(name);
  return names;
}

StateDict zoo_weights(const Module& model, double norm_scale) {
  StateDict weights;
  for (const StateDict::Entry& entry : to_torch_layout(model, model.state_dict())) {
    const Tensor& tensor = std::get<Tensor>(entry.value);
    if (tensor.rank() == 0) continue;
    const Tensor values = weights_of(entry.name, tensor.shape());
    const bool is_scale = tensor.rank() == 1 && entry.name.ends_with("weight");
    weights.set(entry.name, is_scale ? affine(values, norm_scale) : values);
  }
  return from_torch_layout(model, weights);
}

class ZooModelGolden : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, ZooModelGolden, testing::ValuesIn(computed()),
                         [](const auto& test) { return test.param; });

TEST_P(ZooModelGolden, LogitsAndTheGradientOfAStepMatchThePeer) {
  const nlohmann::json& row = zoo()[GetParam()];
  const Shape images = shape_of(row["input"]);
  const auto model = undropped(GetParam(), {kClasses, 3, images[1]});
  model->to(DType::f64);
  model->load_state_dict(zoo_weights(*model, row["norm_scale"].get<double>()));
  const Tensor x = tensor_of(images, Numbers("x"));
  model->eval();
  {
    const NoGrad no_grad;
    expect_logits((*model)(x), row["eval"], 1e-12);
  }
  model->train();
  require_grad(x);
  const Tensor y = (*model)(x);
  expect_logits(y, row["train"], 1e-10);
  backward(y, tensor_of(y.shape(), Numbers("dy")));
  expect_digest("x", grad_of(x), row["dx"], 1e-10);
  StateDict gradients;
  for (const Parameter& parameter : model->parameters())
    gradients.set(parameter.name, grad_of(parameter.tensor));
  Digest all;
  double squares = 0;
  for (const StateDict::Entry& entry : to_torch_layout(*model, gradients)) {
    if (!gradients.contains(entry.name)) continue;  // counts of batches
    const Digest one = digest_of(entry.name, std::get<Tensor>(entry.value));
    all.dot += one.dot;
    squares += one.norm * one.norm;
  }
  all.norm = std::sqrt(squares);
  expect_near(all, row["gradients"], 1e-10, "gradients");
}

TEST_P(ZooModelGolden, LowerPrecisionsTrainAndStayNear) {
  const nlohmann::json& row = zoo()[GetParam()];
  const Shape images = shape_of(row["input"]);
  const ModelOptions size{kClasses, 3, images[1]};
  const StateDict weights = zoo_weights(*undropped(GetParam(), size), row["norm_scale"].get<double>());
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, 1e-5}, {DType::bf16, 0.25}, {DType::f16, 0.05}}) {
    SCOPED_TRACE(name_of(dtype));
    const auto model = undropped(GetParam(), size);
    model->load_state_dict(weights);
    model->to(dtype);
    const Tensor x = cast(tensor_of(images, Numbers("x")), dtype);
    model->eval();
    {
      const NoGrad no_grad;
      expect_logits((*model)(x), row["eval"], tolerance);
    }
    model->train();
    const Tensor y = (*model)(x);
    backward(y, cast(tensor_of(y.shape(), Numbers("dy")), dtype));
    for (const Parameter& parameter : model->parameters()) {
      const Tensor gradient = grad_of(parameter.tensor);
      ASSERT_TRUE(gradient.defined()) << parameter.name;
      EXPECT_TRUE(std::isfinite(sum(cast(gradient, DType::f32)).to_vector()[0])) << parameter.name;
    }
  }
}

TEST_P(ZooModelGolden, DropsWithThePeersProbabilities) {
  const nlohmann::json& expected = zoo()[GetParam()]["drops"];
  const auto model = make_model(GetParam(), {});
  std::vector<double> drops;
  for (const NamedModule& module : model->modules()) {
    if (const double p = drop_probability(*module.module); p > 0) drops.push_back(p);
  }
  ASSERT_EQ(drops.size(), expected.size());
  for (std::size_t i = 0; i < drops.size(); ++i) EXPECT_NEAR(drops[i], expected[i].get<double>(), 1e-7);
}

/// Multiply-adds of an image of the model's own size.
std::int64_t multiply_adds(const std::string& name) {
  const auto model = make_model(name, {});
  const ModelOptions size = model_options(name);
  std::int64_t flops = 0;
  AccountContext account([&](const KernelCost& cost) { flops += cost.flops; });
  const AccountScope scope(account);  // nothing is computed
  const NoGrad no_grad;
  model->load_state_dict(model->state_dict());
  model->eval();
  (*model)(Tensor::zeros({1, size.image_size, size.image_size, size.in_channels}));
  return flops / 2;
}

TEST(Zoo, SizesArePublishedOnes) {
  const std::map<std::string, std::int64_t> without_peer{
      {"lenet5", 61'706},              // 156 + 2,416 + 48,120 + 10,164 + 850
      {"resnet18_cifar", 11'173'962},  // the customary CIFAR variants
      {"resnet34_cifar", 21'282'122},
      {"resnet50_cifar", 23'520'842},
      {"resnet20", 272'474},    // He et al. 0.27 M, with projections
      {"resnet56", 855'770},    // 0.85 M
      {"cifarnet", 1'971'352},  // 1.97 M, 288 frozen ones not counted
      {"digits_cnn", 30'762}};
  for (const std::string& name : model_names()) {
    const std::int64_t count = make_model(name, {})->parameter_count();
    if (const auto found = without_peer.find(name); found != without_peer.end()) {
      EXPECT_EQ(count, found->second) << name;
      continue;
    }
    ASSERT_TRUE(zoo().contains(name)) << name << " needs its row: tests/golden/make_model_goldens.py zoo";
    EXPECT_EQ(count, zoo()[name]["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(multiply_adds(name), zoo()[name]["multiply_adds"].get<std::int64_t>()) << name;
  }
  // ResNet-8, 6n + 2 with n = 1: 464 + 4,672 + 14,528 + 57,728 + 650
  EXPECT_EQ(ResNet({{1, 1, 1, 0}, 16, false, false}, {10, 3, 32}).parameter_count(), 78'042);
}

// Rows: | `name` | parameters | multiply-adds in 10^9 | ...
TEST(Zoo, TheTableOfTheDocsSaysTheSame) {
  std::ifstream page(std::string(ATHANOR_GOLDEN_DIR) + "/../../docs/reference/models.md");
  std::map<std::string, std::pair<std::string, std::string>> table;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 2; at < line.size();) {
      const std::size_t end = std::min(line.find(" | ", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    if (cells.size() >= 3)  // the first row of a name: below are those of measurements
      table.try_emplace(cells[0].substr(1, cells[0].size() - 2), cells[1], cells[2]);
  }
  for (const std::string& name : model_names()) {
    std::string count = std::to_string(make_model(name, {})->parameter_count());
    for (auto at = std::ssize(count) - 3; at > 0; at -= 3) count.insert(static_cast<std::size_t>(at), ",");
    EXPECT_EQ(table[name].first, count) << name;
    EXPECT_EQ(table[name].second, fmt::format("{:.4g}", static_cast<double>(multiply_adds(name)) / 1e9))
        << name;
  }
}

}  // namespace athanor::nn::model_golden_test
