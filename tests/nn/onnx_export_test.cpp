#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "autograd/dropout.h"
#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/onnx/detail/ops.h"
#include "nn/onnx/export.h"
#include "nn/quantized/quantized_network.h"
#include "nn/sequential.h"
#include "nn/torch/torch_layout.h"
#include "tests/support/op_cases.h"
#include "tests/support/temp_dir.h"

namespace athanor::nn::onnx_export_test {

using test::TempDir;

// A file, read back ----------------------------------------------------------------------------------------

/// The fields of a message by their numbers, as protobuf's documentation has the wire format.
struct Fields {
  std::multimap<std::uint64_t, std::uint64_t> numbers;
  std::multimap<std::uint64_t, std::string_view> texts;

  explicit Fields(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t key = varint(bytes), field = key >> 3;
      if ((key & 7) == 0) {
        numbers.emplace(field, varint(bytes));
      } else {
        const std::uint64_t size = (key & 7) == 5 ? 4 : (key & 7) == 2 ? varint(bytes) : bytes.size() + 1;
        if (size > bytes.size()) throw std::runtime_error("a message is cut off");
        texts.emplace(field, bytes.substr(0, size));
        bytes.remove_prefix(size);
      }
    }
  }

  std::uint64_t number(std::uint64_t field) const { return numbers.find(field)->second; }
  std::string text(std::uint64_t field) const { return std::string(texts.find(field)->second); }
  std::vector<Fields> all(std::uint64_t field) const {
    std::vector<Fields> result;
    for (auto [one, end] = texts.equal_range(field); one != end; ++one) result.emplace_back(one->second);
    return result;
  }
  std::vector<std::string> all_texts(std::uint64_t field) const {
    std::vector<std::string> result;
    for (auto [one, end] = texts.equal_range(field); one != end; ++one) result.emplace_back(one->second);
    return result;
  }
  std::vector<std::int64_t> integers(std::uint64_t field) const {
    std::vector<std::int64_t> result;
    for (auto [one, end] = numbers.equal_range(field); one != end; ++one)
      result.push_back(static_cast<std::int64_t>(one->second));
    return result;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (bytes.empty() || shift > 63) throw std::runtime_error("a varint is cut off");
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
};

/// An ONNX file's graph.
struct File {
  std::string bytes;
  Fields model;
  std::string text;  // what `graph` views
  Fields graph;

  explicit File(const std::filesystem::path& path)
      : bytes(test::read_file(path)), model(bytes), text(model.text(7)), graph(text) {}
  File(const File&) = delete;

  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const Fields& node : graph.all(1)) names.push_back(node.text(4));
    return names;
  }
  std::int64_t count(const std::string& op) const {
    const auto all = ops();
    return std::count(all.begin(), all.end(), op);
  }
  /// "images u8 [N, 3, 8, 8]" of the graph's input (11) or output (12).
  std::string value(std::uint64_t field) const {
    const Fields value = graph.all(field).at(0), tensor = value.all(2).at(0).all(1).at(0);
    std::string shape;
    for (const Fields& dimension : tensor.all(2).at(0).all(1)) {
      shape += shape.empty() ? "" : ", ";
      shape += dimension.texts.empty() ? std::to_string(dimension.number(1)) : dimension.text(2);
    }
    return value.text(1) + " " + std::to_string(tensor.number(1)) + " [" + shape + "]";
  }
};

/// A tensor's raw_data.
std::vector<double> floats(const std::string& bytes) {
  std::vector<double> values;
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t bits = 0;
    for (std::size_t byte = 0; byte < 4; ++byte)
      bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i + byte])) << 8 * byte;
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

/// A module that is a function of its own between two layers.
class WithFunction final : public Module {
 public:
  explicit WithFunction(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {
    register_module("before", before_);
    register_module("after", after_);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return after_(f_(before_(x))); }

 private:
  std::function<Tensor(const Tensor&)> f_;
  Linear before_{4, 4}, after_{4, 2};
};

Tensor own_op(const Tensor& x) {
  const Tensor y = clone(x).detach();
  return record("own_op", add(y, y).detach(), {x}, [](const Tensor&, Grads&) {});
}

// Tests ----------------------------------------------------------------------------------------------------

TEST(OnnxExport, LeNetIsTheGraphThatItsLayersAre) {
  const TempDir folder;
  const auto model = make_model("lenet5", {}, 1);
  export_onnx(*model, {28, 28, 1}, folder / "x.onnx", {.metadata = {{"key", "a value"}}});
  const File file(folder / "x.onnx");
  EXPECT_EQ(file.model.number(1), 8u);
  EXPECT_EQ(file.model.text(2), "athanor");
  EXPECT_EQ(file.model.all(8).at(0).number(2), 17u);
  EXPECT_EQ(file.model.all(14).at(0).text(1), "key");
  EXPECT_EQ(file.model.all(14).at(0).text(2), "a value");
  EXPECT_EQ(file.value(11), "images 1 [N, 1, 28, 28]");
  EXPECT_EQ(file.value(12), "logits 1 [N, 10]");
  EXPECT_EQ(file.count("Conv"), 2);
  EXPECT_EQ(file.count("Gemm"), 3);
  EXPECT_EQ(file.count("Flatten"), 1);
  EXPECT_EQ(file.count("Transpose") + file.count("Shape") + file.count("Reshape") + file.count("Identity"),
            0);
  const std::vector<Fields> nodes = file.graph.all(1);
  std::vector<std::string> made{"images"};
  for (const Fields& tensor : file.graph.all(5)) made.push_back(tensor.text(8));
  for (const Fields& node : nodes) {
    for (const std::string& input : node.all_texts(1))
      EXPECT_NE(std::find(made.begin(), made.end(), input), made.end())
          << input << " is read before it is there";
    for (const std::string& output : node.all_texts(2)) made.push_back(output);
  }
  EXPECT_EQ(made.back(), "logits");
}

TEST(OnnxExport, WeightsHaveTheNamesShapesAndValuesOfPyTorch) {
  const TempDir folder;
  for (const char* name : {"lenet5", "resnet20", "cifarnet"}) {
    const auto model = make_model(name, {}, 1);
    const ModelOptions options = model_options(name);
    export_onnx(*model, {options.image_size, options.image_size, options.in_channels}, folder / "x.onnx");
    StateDict torch = to_torch_layout(*model, model->state_dict());
    const File file(folder / "x.onnx");
    std::int64_t weights = 0;
    for (const Fields& tensor : file.graph.all(5)) {
      const std::string weight = tensor.text(8);
      if (!model->state_dict().contains(weight)) continue;
      ++weights;
      const Tensor wanted = torch.tensor(weight);
      EXPECT_EQ(tensor.integers(1), std::vector<std::int64_t>(wanted.shape().begin(), wanted.shape().end()))
          << weight;
      EXPECT_EQ(floats(tensor.text(9)), wanted.to_vector()) << weight;
    }
    EXPECT_EQ(weights, std::ssize(model->state_dict().names())) << name;
  }
}

TEST(OnnxExport, ImagesAreTransposedOnceAtMost) {
  const TempDir folder;
  const auto model = make_model("resnet20", {}, 1);
  const auto transposes = [&](ImageLayout layout) {
    export_onnx(*model, {32, 32, 3}, folder / "x.onnx", {.input = layout});
    return File(folder / "x.onnx").count("Transpose");
  };
  EXPECT_EQ(transposes(ImageLayout::nchw), 0);
  EXPECT_EQ(transposes(ImageLayout::nhwc), 1);
}

// A row of channels that is added to images [N, C, H, W] is [1, C, 1, 1]; a number has no axes.
TEST(OnnxExport, OperandsLieAlongTheChannelsOfImages) {
  struct Shifted final : Module {
    Tensor forward(const Tensor& x) override {
      const Tensor y = conv2d(x, ones({3, 1, 1, 3}));
      return y * arange(1, 4) + full({}, 2.5);
    }
  };
  const TempDir folder;
  Shifted model;
  export_onnx(model, {4, 5, 3}, folder / "x.onnx");
  const File file(folder / "x.onnx");
  EXPECT_EQ(file.ops(), (std::vector<std::string>{"Conv", "Mul", "Add"}));
  const auto shape_of = [&](const std::vector<double>& values) {
    for (const Fields& tensor : file.graph.all(5)) {
      if (floats(tensor.text(9)) == values) return tensor.integers(1);
    }
    return std::vector<std::int64_t>{-1};
  };
  EXPECT_EQ(shape_of({1, 2, 3}), (std::vector<std::int64_t>{1, 3, 1, 1}));
  EXPECT_EQ(shape_of({2.5}), std::vector<std::int64_t>());
}

TEST(OnnxExport, PixelsAreTakenInTheirLayoutAsBytes) {
  const TempDir folder;
  const auto model = make_model("resnet20", {}, 1);
  const OnnxOptions options{
      .input = ImageLayout::nhwc, .pixel_mean = {0.5, 0.4, 0.3}, .pixel_deviation = {0.2, 0.3, 0.4}};
  export_onnx(*model, {32, 32, 3}, folder / "x.onnx", options);
  EXPECT_EQ(File(folder / "x.onnx").value(11), "images 2 [N, 32, 32, 3]");
}

/// Of each tensor in the file, the node that makes it.
std::map<std::string, Fields> makers(const File& file) {
  std::map<std::string, Fields> nodes;
  for (const Fields& node : file.graph.all(1))
    for (const std::string& output : node.all_texts(2)) nodes.emplace(output, node);
  return nodes;
}

TEST(OnnxExport, AQuantizedNetworkHasEachProductBetweenItsQuantizers) {
  const TempDir folder;
  const auto model = make_model("lenet5", {}, 1);
  Calibration calibration(*model, {28, 28, 1});
  calibration.observe(randn({8, 28, 28, 1}, {1, 1}));
  const auto network = quantize(calibration);
  export_onnx(*network, {28, 28, 1}, folder / "x.onnx");
  const File file(folder / "x.onnx");
  EXPECT_EQ(file.value(11), "images 1 [N, 1, 28, 28]");
  EXPECT_EQ(file.value(12), "logits 1 [N, 10]");
  EXPECT_EQ(file.count("Conv"), 2);
  EXPECT_EQ(file.count("Gemm"), 3);
  std::map<std::string, Fields> tensors;
  for (const Fields& tensor : file.graph.all(5)) tensors.emplace(tensor.text(8), tensor);
  const auto nodes = makers(file);
  int products = 0;
  for (const auto& [made, node] : nodes) {
    const std::string op = node.text(4);
    if (op != "Conv" && op != "Gemm") continue;
    ++products;
    const auto inputs = node.all_texts(1);
    ASSERT_EQ(inputs.size(), 3u);
    const auto source = [&](const std::string& name) {
      const Fields& maker = nodes.at(name);
      return maker.text(4) == "Flatten" || maker.text(4) == "MaxPool" ? nodes.at(maker.text(1)) : maker;
    };
    for (const std::string& input : inputs) EXPECT_EQ(source(input).text(4), "DequantizeLinear") << input;
    const auto weights = nodes.at(inputs[1]).all_texts(1), bias = nodes.at(inputs[2]).all_texts(1);
    const std::string layer = weights[0].substr(0, weights[0].rfind('.'));
    EXPECT_EQ(tensors.at(weights[0]).number(2), 3u) << layer << ": i8";
    EXPECT_EQ(tensors.at(bias[0]).number(2), 6u) << layer << ": i32";
    // The bias counts steps of x times steps of the weights, and is that of the network.
    const double x_scale = floats(tensors.at(source(inputs[0]).all_texts(1)[1]).text(9)).at(0);
    const auto w_scale = floats(tensors.at(weights[1]).text(9)), scale = floats(tensors.at(bias[1]).text(9));
    const quantized::Op* const of = network->graph().op_named(layer);
    ASSERT_NE(of, nullptr) << layer;
    for (std::size_t k = 0; k < scale.size(); ++k) {
      EXPECT_FLOAT_EQ(static_cast<float>(scale[k]), static_cast<float>(x_scale * w_scale[k])) << layer;
      std::int32_t stored = 0;
      std::memcpy(&stored, tensors.at(bias[0]).text(9).data() + 4 * k, 4);
      EXPECT_NEAR(stored * scale[k], of->bias.data<float>()[k], 0.51 * scale[k]) << layer;
    }
  }
  EXPECT_EQ(products, 5);
}

// A product of vectors by one number for each channel: no matrix.
TEST(OnnxExport, ALoneNormOfAQuantizedNetworkMultipliesEachChannel) {
  const TempDir folder;
  Sequential model;
  model.add<Linear>(4, 8, LinearOptions{.activation = Activation::relu});
  model.add<BatchNorm>(8);
  model.add<Linear>(8, 3);
  model.initialize(1);
  Calibration calibration(model, {4});
  calibration.observe(randn({8, 4}, {1, 1}));
  const auto network = quantize(calibration);
  export_onnx(*network, {4}, folder / "x.onnx");
  const File file(folder / "x.onnx");
  EXPECT_EQ(file.count("Gemm"), 2);
  ASSERT_EQ(file.count("Mul"), 1);
  const auto nodes = makers(file);
  const auto norm =
      std::find_if(nodes.begin(), nodes.end(), [](const auto& one) { return one.second.text(4) == "Mul"; });
  const std::string weight = nodes.at(norm->second.all_texts(1).at(1)).text(1);
  for (const Fields& tensor : file.graph.all(5)) {
    if (tensor.text(8) != weight) continue;
    EXPECT_EQ(tensor.integers(1), std::vector<std::int64_t>{8});
  }
}

TEST(OnnxExport, NamesAnOpItDoesNotKnowAndItsLayer) {
  const TempDir folder;
  WithFunction own(own_op), random([](const Tensor&x) { return dropout(x, 0.5f, true); });
  EXPECT_REFUSED(export_onnx(own, {4}, folder / "x.onnx"), "own_op", "before");
  EXPECT_REFUSED(export_onnx(random, {4}, folder / "x.onnx"), "dropout", "before");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.onnx"));
}

TEST(OnnxExport, TakesAnUnknownOpWhoseResultIsNotUsed) {
  const TempDir folder;
  WithFunction model([](const Tensor& x) {
    own_op(x);
    return relu(x);
  });
  export_onnx(model, {4}, folder / "x.onnx");
  EXPECT_EQ(File(folder / "x.onnx").ops(), (std::vector<std::string>{"Gemm", "Relu", "Gemm"}));
}

TEST(OnnxExport, RejectsResultsComputedOutsideOfOps) {
  const TempDir folder;
  WithFunction model([](const Tensor& x) {
    std::vector<double> values = x.to_vector();
    for (double& value : values) value *= 2;
    return cast(Tensor::from(values, x.shape()), DType::f32);
  });
  WithFunction scaled([](const Tensor& x) { return affine(x, x.to_vector().at(0)); });
  WithFunction mixed([](const Tensor& x) {
    return x + Tensor::from(std::vector<float>(4, static_cast<float>(x.to_vector().at(0))), {4});
  });
  EXPECT_REFUSED(export_onnx(model, {4}, folder / "x.onnx"), "autograd/", "f64 [2, 4]");
  EXPECT_REFUSED(export_onnx(scaled, {4}, folder / "x.onnx"), "affine", "before", "scale");
  EXPECT_REFUSED(export_onnx(mixed, {4}, folder / "x.onnx"), "autograd/", "f32 [4]");
}

TEST(OnnxExport, RefusesWeightsThatAreNotF32AndLeavesTheFileThatWasThere) {
  const TempDir folder;
  test::write_file(folder / "x.onnx", "before");
  WithFunction model([](const Tensor& x) { return x; });
  model.to(DType::f64);
  EXPECT_REFUSED(export_onnx(model, {4}, folder / "x.onnx"), "f32", "before.weight", "f64");
  EXPECT_EQ(test::read_file(folder / "x.onnx"), "before");
}

TEST(OnnxExport, RefusesWeightsOfTwoGigabytesBeforeItRuns) {
  struct Large final : Module {
    // No memory but for one element.
    Large() { register_parameter("w", Tensor::zeros({1, 1}).view_as_strided({32768, 16384}, {0, 0}, 0)); }
    Tensor forward(const Tensor&) override { throw std::runtime_error("it ran"); }
  };
  const TempDir folder;
  Large model;
  EXPECT_REFUSED(export_onnx(model, {4}, folder / "x.onnx"), "2 GB", "2.15 GB");
}

TEST(OnnxExport, LeavesModulesInTheModeTheyWereIn) {
  const TempDir folder;
  WithFunction model([](const Tensor& x) { return x; });
  model.for_each_module([](Module& module, const auto& own) {
    if (!own.empty() && own[0].tensor.dim(0) == 2) module.eval();
  });
  const auto modes = [&] {
    std::vector<bool> all;
    for (const NamedModule& one : model.modules()) all.push_back(one.module->training());
    return all;
  };
  const std::vector<bool> before = modes();
  EXPECT_EQ(before, (std::vector<bool>{true, true, false}));
  export_onnx(model, {4}, folder / "x.onnx");
  EXPECT_EQ(modes(), before);
}

// An op that nn/onnx/ forgets would only be missed by a user whose model has it.
TEST(OnnxExport, KnowsEveryOpButThoseItRefuses) {
  const auto knows = [](std::string_view op) {
    return onnx::lowering_of(op) || std::ranges::count(test::kNotInOnnx, op) == 1;
  };
  for (const test::OpCase& c : test::op_cases()) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : c.shapes)
      inputs.push_back(test::filled({shape}, DType::f64, {inputs.size() + 1}, c.low, c.high));
    OpTrace trace;
    c.run(inputs);
    for (const TracedOp& op : trace.ops())
      EXPECT_TRUE(knows(op.name)) << op.name << " needs a function in nn/onnx/, or a word in kNotInOnnx";
  }
#define ATH_CHECK_OP(Op, name) EXPECT_TRUE(knows(#name)) << #name;
  ATH_UNARY_OPS(ATH_CHECK_OP)
  ATH_BINARY_OPS(ATH_CHECK_OP)
#undef ATH_CHECK_OP
  for (const std::string_view op : test::kNotInOnnx) EXPECT_FALSE(onnx::lowering_of(op)) << op;
}

TEST(OpTrace, HasTheOpsOfItsThreadWhileItIsAlive) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2}, {2});
  relu(x);
  OpTrace outer;
  {
    OpTrace trace;
    relu(affine(x, 2));
    own_op(x);
    std::thread([&] { relu(x); }).join();
    ASSERT_EQ(trace.ops().size(), 5u);
    EXPECT_EQ(trace.ops()[1].name, "relu");
    EXPECT_TRUE(trace.ops()[1].inputs[0].same_as(trace.ops()[0].outputs[0]));
    EXPECT_EQ(trace.ops()[0].attributes[0].name, "scale");
    EXPECT_EQ(trace.ops()[0].attributes[0].values, std::vector<double>{2});
    EXPECT_EQ(trace.ops()[4].name, "own_op");
    EXPECT_TRUE(trace.ops()[4].inputs[0].same_as(x));
  }
  relu(x);
  EXPECT_EQ(outer.ops().size(), 6u);
}

}  // namespace athanor::nn::onnx_export_test
