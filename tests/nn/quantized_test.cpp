#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "autograd/pool.h"
#include "autograd/scalar_ops.h"
#include "nn/batch_norm.h"
#include "nn/conv_norm.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"
#include "nn/quantized/detail/replay.h"
#include "nn/quantized/quantized_network.h"
#include "nn/sequential.h"
#include "nn/squeeze_excitation.h"
#include "tests/support/op_cases.h"
#include "tests/support/ops.h"

namespace athanor::nn::quantized_test {

constexpr std::uint64_t kSeed = 7;

Tensor noise(const Shape& shape, std::uint64_t seed = 1) {
  return randn(shape, {seed, 1}, 0.1, 1);
}

/// f(x) as a module with layers of its own.
class Net final : public Module {
 public:
  using Forward = std::function<Tensor(Net&, const Tensor&)>;

  explicit Net(Forward forward) : forward_(std::move(forward)) {}
  template <class M, class... Args> Net& with(const std::string& name, Args&&... arguments) {
    parts_.push_back(std::make_unique<M>(std::forward<Args>(arguments)...));
    register_module(name, static_cast<M&>(*parts_.back()));
    return *this;
  }
  Tensor forward(const Tensor& x) override { return forward_(*this, x); }
  Module& operator[](std::size_t i) { return *parts_[i]; }
  Tensor operator()(std::size_t i, const Tensor& x) { return (*parts_[i])(x); }
  using Module::operator();

 private:
  Forward forward_;
  std::vector<std::unique_ptr<Module>> parts_;
};

std::unique_ptr<QuantizedNetwork> quantized(Module& network, const Shape& sample, const Tensor& images,
                                            const QuantizeOptions& options = {}) {
  Calibration calibration(network, sample);
  calibration.observe(images);
  return quantize(calibration, options);
}

Tensor in_f32(Module& network, const Tensor& x) {
  network.eval();
  const NoGrad no_grad;
  return network(x);
}

double cosine(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.to_vector(), right = b.to_vector();
  double product = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    product += left[i] * right[i];
    first += left[i] * left[i];
    second += right[i] * right[i];
  }
  return product / std::sqrt(first * second);
}

std::vector<std::uint8_t> bytes_of(const Tensor& x) {
  const Tensor dense = contiguous(x.detach());
  const auto* const first = reinterpret_cast<const std::uint8_t*>(dense.raw_data());
  return {first, first + dense.bytes()};
}

/// A small network of convolutions: a stem with a pool, a block with a residual, a gate, a head.
std::unique_ptr<Net> small_net() {
  auto net = std::make_unique<Net>([](Net& self, const Tensor& x) {
    const Tensor stem = max_pool2d(self(0, x), square_window(2));
    const Tensor block = static_cast<ConvNorm&>(self[1])(stem, stem);
    const Tensor gated = self(3, hardswish(self(2, block)));
    return self(4, flatten(adaptive_avg_pool2d(gated, 1, 1)));
  });
  net->with<ConvNorm>("stem", 3, 8, 3, Conv2dOptions{.padding = 1, .bias = false},
                      BatchNormOptions{.activation = Activation::relu});
  net->with<ConvNorm>("block", 8, 8, 3, Conv2dOptions{.padding = 1, .bias = false},
                      BatchNormOptions{.activation = Activation::relu});
  net->with<Conv2d>("wide", 8, 16, 1);
  net->with<SqueezeExcitation>("gate", 16, 4);
  net->with<Linear>("head", 16, 5);
  net->initialize(kSeed);
  return net;
}

// The graph ------------------------------------------------------------------------------------------------

/// The graph in f32 of f(x) with these layers.
std::string graph_of(Net& net, const Shape& sample) {
  net.initialize(kSeed);
  return Calibration(net, sample).graph().str();
}

TEST(QuantizedGraph, FoldsNormsAndTakesActivationsAndResidualsIntoProducts) {
  EXPECT_EQ(
      Calibration(*small_net(), {8, 8, 3}).graph().str(),
      "stem.0: product(input:f32, 8 x 3 x 3 x 3) -> f32 [N, 8, 8, 8], low 0\n"
      "stem.1.max_pool2d: max_pool(stem.0:f32, max_pool2d) -> f32 [N, 4, 4, 8]\n"
      "block.0: product(stem.1.max_pool2d:f32, stem.1.max_pool2d:f32, 8 x 3 x 3 x 8) -> f32 [N, 4, 4, "
      "8], low 0\n"
      "wide: product(block.0:f32, 16 x 1 x 1 x 8) -> f32 [N, 4, 4, 16]\n"
      "wide.hardswish: table(wide:f32, hardswish) -> f32 [N, 4, 4, 16]\n"
      "wide.adaptive_avg_pool2d: avg_pool(wide.hardswish:f32, adaptive_avg_pool2d) -> f32 [N, 1, 1, 16]\n"
      "gate.fc1: product(wide.adaptive_avg_pool2d:f32, 4 x 1 x 1 x 16) -> f32 [N, 1, 1, 4], low 0\n"
      "gate.fc2: product(gate.fc1:f32, 16 x 1 x 1 x 4) -> f32 [N, 1, 1, 16]\n"
      "gate.fc2.sigmoid: table(gate.fc2:f32, sigmoid) -> f32 [N, 1, 1, 16]\n"
      "gate.fc2.mul: multiply(wide.hardswish:f32, gate.fc2.sigmoid:f32, mul) -> f32 [N, 4, 4, 16]\n"
      "gate.fc2.adaptive_avg_pool2d: avg_pool(gate.fc2.mul:f32, adaptive_avg_pool2d) -> f32 [N, 1, 1, "
      "16]\n"
      "gate.fc2.reshape: view(gate.fc2.adaptive_avg_pool2d:f32, reshape) -> f32 [N, 16]\n"
      "head: product(gate.fc2.reshape:f32, 5 x 16) -> f32 [N, 5]\n");
}

TEST(QuantizedGraph, MergesFunctionsOfOneElement) {
  Net net([](Net& self, const Tensor& x) {
    const Tensor y = self(0, x);
    return self(1, y * affine(clamp(affine(y, 1, 3), 0, 6), 1.0 / 6));  // hard swish as written out
  });
  net.with<Conv2d>("a", 3, 4, 1).with<Conv2d>("b", 4, 4, 1);
  EXPECT_EQ(graph_of(net, {4, 4, 3}),
            "a: product(input:f32, 4 x 1 x 1 x 3) -> f32 [N, 4, 4, 4]\n"
            "a.mul: table(a:f32, affine clamp affine mul) -> f32 [N, 4, 4, 4]\n"
            "b: product(a.mul:f32, 4 x 1 x 1 x 4) -> f32 [N, 4, 4, 4]\n");
}

TEST(QuantizedGraph, ReluSixAndAReluBehindAPoolAreBoundsOfTheProduct) {
  Net net([](Net& self, const Tensor& x) {
    return self(1, relu(max_pool2d(clamp(self(0, x), 0, 6), square_window(2))));
  });
  net.with<Conv2d>("a", 3, 4, 1).with<Conv2d>("b", 4, 4, 1);
  EXPECT_EQ(graph_of(net, {4, 4, 3}),
            "a: product(input:f32, 4 x 1 x 1 x 3) -> f32 [N, 4, 4, 4], low 0, high 6\n"
            "a.max_pool2d: max_pool(a:f32, max_pool2d) -> f32 [N, 2, 2, 4]\n"
            "a.relu: table(a.max_pool2d:f32, relu) -> f32 [N, 2, 2, 4]\n"
            "b: product(a.relu:f32, 4 x 1 x 1 x 4) -> f32 [N, 2, 2, 4]\n");
  Net behind(
      [](Net& self, const Tensor& x) { return self(1, relu(max_pool2d(self(0, x), square_window(2)))); });
  behind.with<Conv2d>("a", 3, 4, 1).with<Conv2d>("b", 4, 4, 1);
  EXPECT_EQ(graph_of(behind, {4, 4, 3}),
            "a: product(input:f32, 4 x 1 x 1 x 3) -> f32 [N, 4, 4, 4], low 0\n"
            "a.max_pool2d: max_pool(a:f32, max_pool2d) -> f32 [N, 2, 2, 4]\n"
            "b: product(a.max_pool2d:f32, 4 x 1 x 1 x 4) -> f32 [N, 2, 2, 4]\n");
}

TEST(QuantizedGraph, FoldsNothingThatAnotherOpReads) {
  Net net([](Net& self, const Tensor& x) {
    const Tensor y = self(0, x), normed = self(1, y);
    return normed + relu(y);
  });
  net.with<Conv2d>("a", 3, 4, 1).with<BatchNorm>("norm", 4);
  EXPECT_EQ(graph_of(net, {4, 4, 3}),
            "a: product(input:f32, 4 x 1 x 1 x 3) -> f32 [N, 4, 4, 4]\n"
            "norm.relu: table(a:f32, relu) -> f32 [N, 4, 4, 4]\n"
            "norm: product(a:f32, norm.relu:f32, 4 x 1 x 1 x 1, 4 groups) -> f32 [N, 4, 4, 4]\n");
}

TEST(QuantizedGraph, AddsConversionsWhereOpsRunInF32) {
  Net net([](Net& self, const Tensor& x) {
    const Tensor y = self(0, x);                    // [N, 4, 4, 8], which the norm alone reads
    return self(3, gelu(self(2, self(1, y)))) + y;  // a stream in f32
  });
  net.with<Conv2d>("a", 3, 8, 1)
      .with<LayerNorm>("norm", Shape{8})
      .with<Linear>("b", 8, 16)
      .with<Linear>("c", 16, 8);
  net.initialize(kSeed);
  const auto network = quantized(net, {4, 4, 3}, noise({2, 4, 4, 3}));
  EXPECT_EQ(network->graph().str(),
            "input.quantize: quantize(input:f32) -> u8 [N, 4, 4, 3]\n"
            "a: product(input:u8, 8 x 1 x 1 x 3) -> f32 [N, 4, 4, 8]\n"
            "norm.layer_norm: real(a:f32, layer_norm) -> f32 [N, 4, 4, 8]\n"
            "norm.layer_norm.quantize: quantize(norm.layer_norm:f32) -> u8 [N, 4, 4, 8]\n"
            "b: product(norm.layer_norm:u8, 16 x 8) -> u8 [N, 4, 4, 16]\n"
            "b.gelu: table(b:u8, gelu) -> u8 [N, 4, 4, 16]\n"
            "c: product(b.gelu:u8, 8 x 16) -> f32 [N, 4, 4, 8]\n"
            "c.add: add(c.product:f32, a:f32, add) -> f32 [N, 4, 4, 8]\n");
}

TEST(QuantizedGraph, ValuesThatOneOpMovesShareAQuantizer) {
  Net net([](Net& self, const Tensor& x) {
    const Tensor a = self(0, x), b = self(1, x);
    return self(2, max_pool2d(cat({a, b}, 3), square_window(2)));
  });
  net.with<Conv2d>("a", 3, 4, 1).with<Conv2d>("b", 3, 4, 1).with<Conv2d>("c", 8, 4, 1);
  net.initialize(kSeed);
  const Tensor images = noise({2, 4, 4, 3});
  const auto network = quantized(net, {4, 4, 3}, images);
  std::vector<std::string> names;
  for (const quantized::StoredQuantizer& stored : network->graph().quantizers) names.push_back(stored.name);
  EXPECT_EQ(names, (std::vector<std::string>{"input", "a"}));
  EXPECT_GT(cosine(in_f32(net, images), (*network)(images)), 0.999);
}

TEST(QuantizedGraph, AnOpThatCannotBeRepeatedIsRefused) {
  Net net([](Net& self, const Tensor& x) { return topk(self(0, x), 2).values; });
  net.with<Linear>("fc", 6, 4);
  net.initialize(kSeed);
  EXPECT_ERROR(ArgumentError, Calibration(net, {6}), "quantize", "topk", "fc");
}

/// A traced op as a graph has it.
quantized::Op as_op(const TracedOp& traced) {
  quantized::Op op;
  const Tensor& y = traced.outputs[0];
  quantized::Call call{std::string(traced.name), {}, {}, {y.shape(), 0}, y.dtype()};
  for (const TracedAttribute& attribute : traced.attributes)
    call.attributes.push_back({std::string(attribute.name), attribute.values});
  for (std::size_t i = 0; i < traced.inputs.size(); ++i)
    call.operands.push_back(
        {traced.inputs[i].defined() ? quantized::Operand::From::input : quantized::Operand::From::none,
         static_cast<int>(i)});
  op.calls.push_back(std::move(call));
  return op;
}

// An op that nn/quantized/replay.cpp forgets would only be missed by a user whose network has it.
TEST(QuantizedReplay, RepeatsEveryOpButThoseItRefuses) {
  const auto refused = [](std::string_view op) {
    return op == "topk" || std::ranges::count(test::kNotInOnnx, op) == 1;
  };
  const NoGrad no_grad;
  std::size_t repeated = 0;
  for (const test::OpCase& c : test::op_cases()) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : c.shapes)
      inputs.push_back(test::filled({shape}, DType::f64, {inputs.size() + 1}, c.low, c.high));
    std::vector<TracedOp> ops;
    {
      OpTrace trace;
      c.run(inputs);
      ops = trace.ops();
    }
    for (const TracedOp& op : ops) {
      EXPECT_EQ(quantized::replay_of(op.name) == nullptr, refused(op.name)) << op.name;
      if (!quantized::replay_of(op.name) || op.inputs.empty()) continue;
      const Tensor y = quantized::replay(as_op(op), op.inputs, 1);
      ASSERT_EQ(y.shape(), op.outputs[0].shape()) << c;
      const std::vector<double> found = y.to_vector(), wanted = op.outputs[0].to_vector();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const bool same = found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]));
        ASSERT_TRUE(same || std::abs(found[i] - wanted[i]) < 1e-10)
            << c << ": " << op.name << " gives " << found[i] << ", not " << wanted[i];
      }
      ++repeated;
    }
  }
  EXPECT_GT(repeated, 60u);
#define ATH_CHECK_OP(Op, name) EXPECT_TRUE(quantized::replay_of(#name)) << #name;
  ATH_UNARY_OPS(ATH_CHECK_OP)
  ATH_BINARY_OPS(ATH_CHECK_OP)
#undef ATH_CHECK_OP
}

TEST(QuantizedGraph, WhatRunsInF32IsRepeatedForAnyBatch) {
  Net net([](Net& self, const Tensor& x) {
    const Tensor y = self(0, x);  // [N, 4, 4, 4]
    const Tensor tokens = reshape(y, {y.dim(0), 16, 4}),
                 token = expand(Tensor::from(std::vector<float>{1, 2, 3, 4}, {1, 1, 4}), {y.dim(0), 1, 4});
    const Tensor all = cat({token, tokens}, 1);  // [N, 17, 4]
    const Tensor weights = softmax(matmul(all, permute(all, {0, 2, 1})));
    return self(1, select(matmul(weights, all), 1, 0) + mean(narrow(all, 1, 3, 5), {1}));
  });
  net.with<Conv2d>("a", 3, 4, 1).with<Linear>("b", 4, 2);
  net.initialize(kSeed);
  const Calibration calibration(net, {4, 4, 3});
  const Tensor images = noise({5, 4, 4, 3});
  EXPECT_EQ(bytes_of(calibration.forward(images)), bytes_of(in_f32(net, images)));
}

// Numbers --------------------------------------------------------------------------------------------------

TEST(Quantized, AProductIsTheContractsArithmetic) {
  Net net([](Net& self, const Tensor& x) { return self(1, self(0, x)); });
  net.with<Linear>("a", 3, 2, LinearOptions{.activation = Activation::relu}).with<Linear>("b", 2, 1);
  net.initialize(kSeed);
  const Tensor images = Tensor::from(std::vector<float>{1, -1, 0.5f, 2, 0.25f, -2}, {2, 3});
  const auto network = quantized(net, {3}, images, {.correct_bias = false});
  const StateDict state = network->state_dict();
  const auto values = [&](const char* name) { return state.tensor(name).to_vector(); };
  // By hand, as kernels/int8.h says, from what the file would hold.
  const auto scale = static_cast<float>(values("input.scale")[0]);
  EXPECT_FLOAT_EQ(scale, 4.0f / 255);
  const double zero = values("input.zero")[0];
  EXPECT_EQ(zero, 127);  // of 127.5, where the scale in f32 is a little above 4 / 255
  const Tensor y = (*network)(images);
  for (int n = 0; n < 2; ++n) {
    std::vector<double> hidden;
    for (std::size_t k = 0; k < 2; ++k) {
      const double unit = static_cast<double>(scale) * values("a.weight_scale")[k];
      double sum = std::nearbyint(values("a.bias")[k] / unit);
      for (std::size_t c = 0; c < 3; ++c) {
        const float x = images.data<float>()[3 * n + static_cast<int>(c)];
        const double stored = std::clamp(std::nearbyint(static_cast<double>(x / scale)) + zero, 0.0, 255.0);
        sum += (stored - zero) * values("a.weight")[3 * k + c];
      }
      const auto multiplier = static_cast<float>(unit / values("a.scale")[0]);
      const double rounded = std::nearbyint(static_cast<double>(multiplier * static_cast<float>(sum)));
      EXPECT_EQ(values("a.zero")[0], 0);
      hidden.push_back(std::clamp(rounded, 0.0, 255.0));
    }
    const double unit = values("a.scale")[0] * values("b.weight_scale")[0];
    const double sum = std::nearbyint(values("b.bias")[0] / unit) + hidden[0] * values("b.weight")[0] +
                       hidden[1] * values("b.weight")[1];
    EXPECT_EQ(y.to_vector()[static_cast<std::size_t>(n)],
              static_cast<double>(static_cast<float>(unit) * static_cast<float>(sum)));
  }
}

TEST(Quantized, WeightsAreSymmetricPerChannelAndMayAllBeZero) {
  Net net([](Net& self, const Tensor& x) { return self(0, x); });
  net.with<Linear>("a", 2, 3);
  net.initialize(kSeed);
  const auto set = [&](const char* name, const std::vector<float>& values) {
    const Tensor to = net.state_dict().tensor(name);
    to.detach().copy_bytes_from(Tensor::from(values, to.shape()));
  };
  set("a.weight", {-2, 1, 0, 0, 1e-12f, -1e-12f});
  set("a.bias", {0.5f, 3, 1});
  const Tensor images = Tensor::from(std::vector<float>{1, 1, -1, 0.5f}, {2, 2});
  const auto network = quantized(net, {2}, images, {.correct_bias = false});
  const StateDict state = network->state_dict();
  EXPECT_EQ(state.tensor("a.weight").to_vector()[0], -127);
  EXPECT_EQ(state.tensor("a.weight").to_vector()[1], 64);
  EXPECT_FLOAT_EQ(static_cast<float>(state.tensor("a.weight_scale").to_vector()[0]), 2.0f / 127);
  const std::vector<double> y = (*network)(images).to_vector();
  EXPECT_NEAR(y[1], 3, 1e-6) << "the bias of a channel of zeros";
  EXPECT_NEAR(y[2], 1, 1e-6) << "a bias that is far larger than its channel's products";
}

TEST(Quantized, AKeptLayerStaysInF32AndAnUnknownOneIsRefused) {
  const auto net = small_net();
  const Tensor images = noise({4, 8, 8, 3});
  Calibration calibration(*net, {8, 8, 3});
  EXPECT_ERROR(ArgumentError, quantize(calibration), "quantize");  // no images
  calibration.observe(images);
  const auto network = quantize(calibration, {.keep_f32 = {"stem.0", "head"}});
  EXPECT_EQ(network->products_in(DType::f32), (std::vector<std::string>{"stem.0", "head"}));
  EXPECT_EQ(network->products_in(DType::i8),
            (std::vector<std::string>{"block.0", "wide", "gate.fc1", "gate.fc2"}));
  EXPECT_GT(cosine(in_f32(*net, images), (*network)(images)), 0.99);
  EXPECT_ERROR(ArgumentError, quantize(calibration, {.keep_f32 = {"heed"}}), "heed", "head");
  const auto all = quantize(calibration, {.keep_f32 = calibration.products()});
  EXPECT_FALSE(is_quantized(all->state_dict()));
  EXPECT_TRUE(is_quantized(network->state_dict()));
  EXPECT_EQ((*all)(images).to_vector(), calibration.forward(images).to_vector()) << "nothing is rounded";
}

TEST(Quantized, AResultThatIsNearlyAlwaysZeroIsNotRefused) {
  Net net([](Net& self, const Tensor& x) { return self(1, self(0, x)); });
  net.with<Linear>("a", 3, 4, LinearOptions{.activation = Activation::relu}).with<Linear>("b", 4, 2);
  net.initialize(kSeed);
  const Tensor bias = net.state_dict().tensor("a.bias").detach();
  bias.copy_bytes_from(full({4}, -1e9));
  const Tensor images = noise({4, 3});
  const auto network = quantized(net, {3}, images, {.choose = [](const ObservedValue&) {
                                   return Quantizer{1e-35f, 0};
                                 }});
  for (const double value : (*network)(images).to_vector()) EXPECT_TRUE(std::isfinite(value));
}

TEST(Quantized, CorrectedBiasesKeepTheMeanOfAResult) {
  Net net([](Net& self, const Tensor& x) { return self(0, x); });
  net.with<Linear>("a", 64, 8);
  net.initialize(kSeed);
  const Tensor images = affine(rand({32, 64}, {3, 3}), 1, 2);  // of mean 2.5
  const std::vector<double> wanted = mean(in_f32(net, images), {0}).to_vector();
  double errors[2] = {0, 0};
  for (const bool corrects : {false, true}) {
    const auto network = quantized(net, {64}, images, {.correct_bias = corrects});
    const std::vector<double> means = mean((*network)(images), {0}).to_vector();
    for (std::size_t k = 0; k < means.size(); ++k) errors[corrects] += std::abs(means[k] - wanted[k]);
  }
  EXPECT_LT(errors[1], 0.3 * errors[0]);
}

class QuantizedModels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, QuantizedModels,
                         testing::Values("lenet5", "digits_cnn", "cifarnet", "resnet20", "resnet50d",
                                         "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
                                         "regnet_y_400mf", "densenet121", "convnext_tiny", "vit_tiny"),
                         [](const auto& test) { return test.param; });

TEST_P(QuantizedModels, AreNearTheFloatNetworkAndReadTheirOwnFile) {
  const std::string name = GetParam();
  const ModelOptions defaults = model_options(name);
  const std::int64_t side = std::min<std::int64_t>(defaults.image_size, 32), channels = defaults.in_channels;
  const ModelOptions options{10, 0, side};
  const auto model = make_model(name, options, kSeed);
  for (const Parameter& parameter : model->parameters()) {  // heads and scales that are zero at first
    const std::vector<double> values = parameter.tensor.detach().to_vector();
    const bool is_zero = std::ranges::all_of(values, [](double value) { return value == 0; });
    if (is_zero && parameter.name.ends_with("weight")) init::normal(parameter.tensor, {1, 2}, 0, 0.1);
  }
  const Shape sample{side, side, channels};
  const Tensor images = noise({2, side, side, channels});
  const auto network = quantized(*model, sample, images);
  const Tensor y = (*network)(images);
  EXPECT_GT(cosine(in_f32(*model, images), y), 0.99);
  EXPECT_TRUE(network->products_in(DType::f32).empty());
  const auto architecture = make_model(name, options);
  QuantizedNetwork back(*architecture, sample, network->state_dict());
  EXPECT_EQ(bytes_of(back(images)), bytes_of(y));

  std::uint64_t stream = 0;  // folded norms must read the statistics, which are those of no data yet
  for (const StateDict::Entry& entry : model->state_dict()) {
    if (entry.name.ends_with("running_mean"))
      init::normal(std::get<Tensor>(entry.value), {3, stream++}, 0, 0.3);
    if (entry.name.ends_with("running_var"))
      init::uniform(std::get<Tensor>(entry.value), {3, stream++}, 0.5, 2);
  }
  const std::vector<double> wanted = in_f32(*model, images).to_vector(),
                            folded = Calibration(*model, sample).forward(images).to_vector();
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    error = std::max(error, std::abs(folded[i] - wanted[i]));
  }
  EXPECT_LE(error, 1e-4 * largest);
}

// The state ------------------------------------------------------------------------------------------------

/// The state of small_net() in 8-bit integers, in memory of its own.
StateDict small_state() {
  const auto network = quantized(*small_net(), {8, 8, 3}, noise({4, 8, 8, 3}));
  StateDict state;
  for (const StateDict::Entry& entry : network->state_dict())
    state.set(entry.name, clone(std::get<Tensor>(entry.value)));
  return state;
}

StateDict replaced(const StateDict& state, const std::string& name, const Tensor& tensor) {
  StateDict result;
  for (const StateDict::Entry& entry : state) {
    if (entry.name != name) result.set(entry.name, entry.value);
  }
  if (tensor.defined()) result.set(name, tensor);
  return result;
}

std::string refusal(const StateDict& state) {
  const auto architecture = small_net();
  return test::message_of([&] { QuantizedNetwork network(*architecture, {8, 8, 3}, state); });
}

TEST(QuantizedState, IsCheckedWhole) {
  const StateDict state = small_state();
  EXPECT_EQ(refusal(state), "");
  const auto scalar = [](float value) { return Tensor::from(std::vector<float>{value}, {}); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, -1.0f, std::nanf(""), kInfinity, 1e-45f})
    EXPECT_TRUE(test::names(refusal(replaced(state, "input.scale", scalar(scale))), {"input"})) << scale;
  for (const float scale : {0.0f, -1.0f, std::nanf(""), kInfinity, 3e38f})
    EXPECT_TRUE(test::names(refusal(replaced(state, "wide.weight_scale", full({16}, scale))), {"wide"}))
        << scale;
  for (const float bias : {std::nanf(""), kInfinity, 1e30f})
    EXPECT_TRUE(test::names(refusal(replaced(state, "head.bias", full({5}, bias))), {"head"})) << bias;
  EXPECT_TRUE(test::names(refusal(replaced(state, "stem.0.scale", scalar(1e-37f))), {"stem.0"}));
  EXPECT_TRUE(test::names(refusal(replaced(state, "wide.scale", {})), {"wide.scale"}));
  EXPECT_TRUE(test::names(refusal(replaced(state, "wide.hardswish.table", {})), {"wide.hardswish.table"}));
  EXPECT_TRUE(test::names(refusal(replaced(state, "more", scalar(1))), {"more"}));
  EXPECT_TRUE(test::names(refusal(replaced(state, "head.weight", Tensor::zeros({5, 1, 1, 15}, {DType::i8}))),
                          {"head.weight"}));
  EXPECT_TRUE(
      test::names(refusal(replaced(state, "head.bias", Tensor::zeros({5}, {DType::i64}))), {"head.bias"}));
  const Tensor weight = clone(state.tensor("head.weight"));
  weight.data<std::int8_t>()[3] = -128;
  EXPECT_TRUE(test::names(refusal(replaced(state, "head.weight", weight)), {"head.weight", "-128"}));
}

/// x times a parameter whose name is that of a value's scale.
class Scale final : public Module {
 public:
  Scale() : scale_(register_parameter("scale", full({4}, 3))) {}
  Tensor forward(const Tensor& x) override { return x * scale_; }

 private:
  Tensor scale_;
};

TEST(QuantizedState, AParameterNamedAsAQuantizerIsKept) {
  const auto make = [] {
    auto net = std::make_unique<Net>(
        [](Net& self, const Tensor& x) { return self(3, relu(self(1, x) + self(2, self(0, x)))); });
    net->with<Scale>("input").with<Linear>("a", 4, 8).with<Linear>("b", 4, 8).with<Linear>("c", 8, 3);
    net->initialize(kSeed);
    return net;
  };
  const auto net = make(), architecture = make();
  for (const Parameter& parameter : net->parameters())
    if (parameter.name == "input.scale") init::constant(parameter.tensor, 5);
  const Tensor images = noise({8, 4});
  const auto network = quantized(*net, {4}, images);
  QuantizedNetwork back(*architecture, {4}, network->state_dict());
  EXPECT_EQ(bytes_of(back(images)), bytes_of((*network)(images)));
}

TEST(QuantizedState, ValuesThatChangeLaterAreUsedAndChecked) {
  const auto network = quantized(*small_net(), {8, 8, 3}, noise({4, 8, 8, 3}));
  const Tensor images = noise({2, 8, 8, 3}, 5);
  const std::vector<double> before = (*network)(images).to_vector();
  const StateDict state = small_state();
  network->load_state_dict(replaced(state, "head.bias", full({5}, 1)));
  EXPECT_NE((*network)(images).to_vector(), before);
  network->load_state_dict(state);
  EXPECT_EQ((*network)(images).to_vector(), before);
  network->load_state_dict(replaced(state, "head.weight_scale", full({5}, -1)));
  EXPECT_ERROR(ArgumentError, (*network)(images), "head");
}

TEST(Quantized, AnyNumberOfThreadsMayRunIt) {
  const auto network = quantized(*small_net(), {8, 8, 3}, noise({4, 8, 8, 3}));
  const Tensor images = noise({3, 8, 8, 3}, 5);
  const std::vector<std::uint8_t> alone = bytes_of((*network)(images));
  const StateDict state = small_state();
  network->load_state_dict(state);  // so that the threads find nothing prepared
  std::vector<std::vector<std::uint8_t>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<std::uint8_t>& bytes : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) bytes = bytes_of((*network)(images));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<std::uint8_t>& bytes : found) EXPECT_EQ(bytes, alone);
}

TEST(Quantized, ImagesOfAnotherShapeAreRefused) {
  const auto network = quantized(*small_net(), {8, 8, 3}, noise({4, 8, 8, 3}));
  EXPECT_ERROR(ArgumentError, (*network)(noise({1, 8, 9, 3})), "[1, 8, 9, 3]");
  EXPECT_ERROR(ArgumentError, (*network)(noise({8, 8, 3})), "[8, 8, 3]");
  EXPECT_ERROR(ArgumentError, (*network)(Tensor::zeros({1, 8, 8, 3}, {DType::u8})), "u8");
  EXPECT_ERROR(ArgumentError, (*network)({}), "undefined");
}

// The calibration ------------------------------------------------------------------------------------------

TEST(Calibration, SeesEachValueOfAllImages) {
  Net net([](Net& self, const Tensor& x) { return self(0, x); });
  net.with<Linear>("a", 2, 2);
  net.initialize(kSeed);
  Calibration calibration(net, {2});
  const Tensor first = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}),
               second = Tensor::from(std::vector<float>{-5, 0}, {1, 2});
  EXPECT_EQ(calibration.observe(first).to_vector(), in_f32(net, first).to_vector());
  calibration.observe(second);
  EXPECT_EQ(calibration.images(), 3);
  ASSERT_EQ(calibration.values().size(), 2u);
  const ObservedValue& input = calibration.values()[0];
  EXPECT_EQ(input.name, "input");
  EXPECT_EQ(input.min, -5);
  EXPECT_EQ(input.max, 4);
  EXPECT_EQ(input.rows, 3);
  EXPECT_DOUBLE_EQ(input.channel_means[0], (1 + 3 - 5) / 3.0);
  EXPECT_DOUBLE_EQ(input.channel_means[1], 2);
  EXPECT_EQ(calibration.values()[1].name, "a");
  const Tensor infinite = Tensor::from(std::vector<float>{std::numeric_limits<float>::infinity(), 0}, {1, 2});
  EXPECT_ERROR(ArgumentError, calibration.observe(infinite), "input");
  EXPECT_ERROR(ArgumentError, calibration.observe(noise({2, 3})), "[2, 3]");
}

std::int64_t total(const Histogram& histogram) {
  std::int64_t sum = 0;
  for (const std::int64_t count : histogram.counts()) sum += count;
  return sum;
}

TEST(Calibration, AHistogramGrowsByDoubling) {
  Histogram histogram;
  const auto add = [&](std::vector<float> numbers) {
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    histogram.add(numbers, *low, *high);
  };
  add({0, 0});
  EXPECT_EQ(histogram.counts(), std::vector<std::int64_t>{2});
  add({1, 0.5f, 1});
  EXPECT_EQ(histogram.width(), 1.0 / 1024);
  ASSERT_EQ(histogram.counts().size(), 1025u);
  EXPECT_EQ(histogram.counts().front(), 2);
  EXPECT_EQ(histogram.counts()[512], 1);
  EXPECT_EQ(histogram.counts().back(), 2);
  add({-1000, 3});
  EXPECT_LE(std::ssize(histogram.counts()), Histogram::kBins);
  EXPECT_EQ(total(histogram), 7);
  EXPECT_LE(histogram.edge(0), -1000);
  EXPECT_GT(histogram.edge(1), -1000);
  EXPECT_EQ(histogram.counts().front(), 1);
  const std::int64_t last = std::ssize(histogram.counts()) - 1;
  EXPECT_LE(histogram.edge(last), 3);
  EXPECT_GT(histogram.edge(last + 1), 3);
  const double width = histogram.width();
  add({1e-30f});
  EXPECT_EQ(histogram.width(), width) << "it only grows";
  Histogram other;
  const std::vector<float> small{-1e-6f, 2e-6f};
  other.add(small, -1e-6f, 2e-6f);
  other.add(histogram);
  EXPECT_EQ(total(other), 10);
  EXPECT_EQ(other.width(), width);
}

TEST(Calibration, TheWholeRangeIncludesZero) {
  const auto of = [](float min, float max) {
    return min_max_quantizer({.name = "x", .min = min, .max = max});
  };
  EXPECT_EQ(of(0, 5.1f), (Quantizer{5.1f / 255, 0}));
  EXPECT_EQ(of(1, 5.1f), (Quantizer{5.1f / 255, 0}));
  EXPECT_EQ(of(-1, 3).zero, 64);
  EXPECT_EQ(of(-2, -1), (Quantizer{2.0f / 255, 255}));
  EXPECT_EQ(of(0, 0), (Quantizer{1, 0}));
}

}  // namespace athanor::nn::quantized_test
