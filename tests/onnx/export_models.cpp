// export_models DIR: every kind of model, and small networks with what no model has, as ONNX files with
// results of ours beside them, for exported.py to run. Weights and running statistics are random.

#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/compare.h"
#include "autograd/conv.h"
#include "autograd/conv_transpose.h"
#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/interpolate.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/scalar_ops.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "autograd/topk.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "nn/attention.h"
#include "nn/models/model.h"
#include "nn/models/unet.h"
#include "nn/onnx/export.h"
#include "nn/quantized/quantized_network.h"
#include "tensor/io/safetensors.h"
#include "tests/support/model_kinds.h"
#include "trainer/inference/model_file.h"

namespace {

using namespace athanor;
namespace fs = std::filesystem;

/// Statistics and weights as training might leave them: nothing is zero, or one.
void randomize(nn::Module& model) {
  std::uint64_t stream = 1;
  const auto set = [&](const Tensor& target, double low, double high) {
    const Tensor values = rand(target.shape(), {7, stream++}, low, high);
    kernels::copy(cpu_context(), values, target.detach());
    target.bump_version();
  };
  for (const NamedTensor& buffer : model.buffers()) {
    const bool variance = buffer.name.ends_with("var");
    set(buffer.tensor, variance ? 0.5 : -0.3, variance ? 2 : 0.3);
  }
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.tensor.rank() == 1) set(parameter.tensor, 0.2, 0.9);
    if (parameter.name.ends_with("head.weight") || parameter.name.ends_with("class_token") ||
        parameter.name.ends_with("layer_scale"))
      set(parameter.tensor, -0.5, 0.5);
  }
}

/// The files NAME.onnx and NAME.safetensors, with results for batches of one and of five.
void write(const fs::path& folder, const std::string& name, nn::Module& model, const Shape& sample,
           const nn::OnnxOptions& options = {}, StateDict state = {}) {
  model.eval();
  nn::export_onnx(model, sample, folder / (name + ".onnx"), options);
  const NoGrad no_grad;
  for (const std::int64_t batch : {1, 5}) {
    Shape shape{batch};
    for (const std::int64_t size : sample) shape.push_back(size);
    const Tensor x = randn(shape, {11, static_cast<std::uint64_t>(batch)}), y = model(x);
    const auto as_given = [&](const Tensor& t) {
      const bool turn = t.rank() == 4 && options.input == nn::ImageLayout::nchw;
      return clone(turn ? permute(t, {0, 3, 1, 2}) : t);
    };
    state.set(fmt::format("x{}", batch), as_given(x));
    state.set(fmt::format("y{}", batch), as_given(y));
  }
  safetensors::save(folder / (name + ".safetensors"), state);
}

/// A network of a function alone.
class Function final : public nn::Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {}
  Tensor forward(const Tensor& x) override { return f_(x); }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

Tensor weight(const Shape& shape, std::uint64_t stream) {
  return rand(shape, {13, stream}, -0.5, 0.5);
}

struct Case {
  const char* name;
  Shape sample;
  std::function<Tensor(const Tensor&)> f;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"unary",
       {4, 5, 3},
       [](const Tensor& x) {
         return gelu_tanh(x) + hardswish(x) * hardsigmoid(x) + mish(x) - sigmoid(x) * tanh(x) + exp(x) +
                log(affine(abs(x), 1, 1)) + sqrt(abs(x)) + rsqrt(affine(square(x), 1, 1)) + neg(silu(x));
       }},
      {"numbers",
       {4, 5, 3},
       [](const Tensor& x) {
         return leaky_relu(x, 0.1) + elu(x, 0.7) + softplus(x, 2) + clamp(x, -0.5, 0.8) + clamp(x, 0.1) +
                pow(affine(abs(x), 1, 1), 1.5) + floor_divide(x, 0.7) + remainder(x, 0.7);
       }},
      {"broadcast",
       {4, 5, 3},
       [](const Tensor& x) {
         const Tensor y = conv2d(x, weight({3, 1, 1, 3}, 1));
         return maximum(y * weight({3}, 2), weight({5, 1}, 3)) - minimum(x, y) / affine(abs(y), 1, 1) +
                weight({}, 4) + pow(affine(abs(y), 1, 1), weight({3}, 5));
       }},
      {"choices",
       {4, 5, 3},
       [](const Tensor& x) {
         const Tensor y = conv2d(x, weight({3, 1, 1, 3}, 1));
         const Tensor both =
             logical_or(logical_and(lt(x, y), ge(x, -1.0)), logical_xor(ne(x, y), gt(y, 0.2)));
         return where(logical_and(both, logical_not(le(x, weight({3}, 6)))), x, y) +
                cast(eq(x, x), DType::f32);
       }},
      {"same_padding",
       {6, 7, 3},
       [](const Tensor& x) {
         return conv2d(x, weight({4, 4, 2, 3}, 1), weight({4}, 2),
                       {.same_padding = true, .activation = Activation::silu});
       }},
      {"dilated",
       {9, 8, 4},
       [](const Tensor& x) {
         return conv2d(x, weight({6, 3, 2, 2}, 1), weight({6}, 2),
                       {.stride = {2, 1},
                        .padding = {1, 2},
                        .dilation = {2, 1},
                        .groups = 2,
                        .activation = Activation::relu});
       }},
      {"transposed",
       {5, 4, 4},
       [](const Tensor& x) {
         return conv_transpose2d(
             x, weight({4, 3, 2, 3}, 1), weight({6}, 2),
             {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 0}, .groups = 2});
       }},
      {"pools",
       {9, 7, 3},
       [](const Tensor& x) {
         const Tensor a = max_pool2d(x, {.window = {3, 2}, .padding = {1, 0}, .ceil_mode = true});
         const Tensor b = avg_pool2d(x, {.window = {2, 2}, .ceil_mode = true, .count_padding = false});
         const Tensor c = avg_pool2d(x, {.window = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
         const Tensor d = max_pool2d(c, {.window = {2, 2}, .stride = {1, 1}, .dilation = {2, 3}});
         return cat({flatten(a), flatten(b), flatten(c), flatten(d), flatten(adaptive_avg_pool2d(x, 4, 3)),
                     flatten(adaptive_avg_pool2d(x, 3, 1)), flatten(adaptive_avg_pool2d(x, 11, 8))},
                    1);
       }},
      {"resized",
       {6, 5, 3},
       [](const Tensor& x) {
         const Tensor a = interpolate(x, {.scale = {2, 2}}), b = interpolate(x, {.size = {7, 9}});
         const Tensor c = interpolate(x, {.mode = Interpolation::bilinear, .size = {9, 11}});
         const Tensor d =
             interpolate(x, {.mode = Interpolation::bilinear, .align_corners = true, .size = {9, 11}});
         const Tensor e = interpolate(x, {.mode = Interpolation::bilinear, .scale = {0.5, 1.7}});
         return cat({flatten(a), flatten(b), flatten(c), flatten(d), flatten(e),
                     flatten(pixel_unshuffle(a, 2)), flatten(pixel_shuffle(cat({x, x, x, x}, 3), 2))},
                    1);
       }},
      {"norms",
       {5, 4, 6},
       [](const Tensor& x) {
         const Tensor g = weight({6}, 1), b = weight({6}, 2), v = abs(weight({6}, 3));
         const Tensor y = group_norm(x, 3, g, b) + instance_norm(x, g, b) + instance_norm(x) +
                          layer_norm(x, g) + layer_norm(x, {}, {}, 1e-3, 2) + layer_norm(x, g, b);
         return batch_norm(batch_norm(y, g, b, b, v, false, {}, x), {}, {}, b, v, false,
                           {.activation = Activation::gelu});
       }},
      {"rows",
       {7, 6},
       [](const Tensor& x) {
         const Tensor g = weight({6}, 1), b = weight({6}, 2), v = abs(weight({6}, 3));
         const Tensor y = batch_norm(x, g, b, b, v, false);  // [N, T, C]
         return linear(y, weight({4, 6}, 4), {}, Activation::relu) + matmul(y, weight({6, 4}, 5));
       }},
      {"reduced",
       {5, 4, 6},
       [](const Tensor& x) {
         const Tensor y = conv2d(x, weight({6, 1, 1, 6}, 1));
         const Tensor wide = softmax(y, 3) + log_softmax(y, 1) + mean(y, {1, 2}, true) + sum(y, {3}, true) +
                             var(y, std::array{1}, 1, true) + max(y, 2, true);
         const Tensor rows = mean(y, {1, 2}) + sum(y, {1, 2}) + max(max(y, 1), 1);
         return cat({flatten(wide), rows, flatten(sum(y, {3})), flatten(mean(y, {1})),
                     flatten(var(x, std::array{2, 3}, 0)), cast(argmax(rows, 1, true), DType::f32),
                     flatten(cast(argmax(y, 3), DType::f32))},
                    1);
       }},
      {"moved",
       {5, 4, 6},
       [](const Tensor& x) {
         const Tensor y = conv2d(x, weight({6, 1, 1, 6}, 1));
         const Tensor order = Tensor::from(std::vector<std::int64_t>{3, 0, 3}, {3});
         const Tensor stacked = stack({narrow(y, 1, 1, 3), narrow(x, 1, 2, 3)}, 2);
         const TopK largest = topk(y, 2, 3);
         return cat({flatten(stacked), flatten(select(y, 2, -1)), flatten(transpose(y, 1, 3)),
                     flatten(index_select(y, 3, order)), flatten(unsqueeze(y, 1)),
                     flatten(squeeze(narrow(y, 3, 2, 1), 3)), flatten(largest.values),
                     flatten(gather(y, 3, largest.indices)), flatten(cat({x, y}, 3)),
                     flatten(expand(mean(y, {1}, true), y.shape())), reshape(y, {x.dim(0), 120})},
                    1);
       }},
      {"batched_rows",
       {5, 4},
       [](const Tensor& x) {  // the batch goes into the rows, and comes back
         const Tensor rows = reshape(x, {-1, 4});
         const Tensor y = linear(rows, weight({3, 4}, 1)) + zeros({rows.dim(0), 3});
         return reshape(y, {x.dim(0), 5, 3});
       }},
  };
  return kCases;
}

/// With the library's own layers of attention, causal and by heads.
class Attention final : public nn::Module {
 public:
  Attention() { register_module("attention", attention_); }
  Tensor forward(const Tensor& x) override { return attention_(x); }

 private:
  nn::MultiheadAttention attention_{12, {.heads = 3, .causal = true}};
};

/// A model in 8-bit integers, calibrated on random images.
std::unique_ptr<nn::QuantizedNetwork> quantized(nn::Module& model, const Shape& sample) {
  Shape images{32};
  for (const std::int64_t size : sample) images.push_back(size);
  nn::Calibration calibration(model, sample);
  calibration.observe(randn(images, {17, 1}));
  return nn::quantize(calibration);
}

/// What one step of each value that the last product reads makes of each result, at most.
Tensor step_of(const nn::QuantizedNetwork& network) {
  const nn::quantized::Graph& graph = network.graph();
  const nn::quantized::Op& last = graph.ops.back();
  const auto& x = graph.values[static_cast<std::size_t>(last.inputs[0])];
  const std::int64_t rows = last.weight.dim(0);
  const Tensor weights = reshape(cast(last.weight, DType::f32), {rows, last.weight.numel() / rows});
  return affine(sum(abs(weights), {1}) * last.weight_scale, quantizer_of(graph, x).scale);
}

/// write() of a model in 8-bit integers, with its `step` beside the results.
void write_quantized(const fs::path& folder, const std::string& name, std::int64_t size,
                     const nn::OnnxOptions& options = {}) {
  const Shape sample{size, size, nn::model_options(name).in_channels};
  const auto model = nn::make_model(name, {.classes = 7, .image_size = size}, 3);
  randomize(*model);
  const auto network = quantized(*model, sample);
  StateDict beside;
  beside.set("step", step_of(*network));
  write(folder, "int8_" + name, *network, sample, options, std::move(beside));
}

/// A model's file as a run leaves it, that of 8-bit integers made of it, and what they say of u8 pixels, for
/// `athanor convert --preprocess`.
void write_model_file(const fs::path& folder) {
  const auto model = nn::make_model("resnet20", {.classes = 3, .in_channels = 3, .image_size = 16}, 5);
  randomize(*model);
  model->eval();
  ModelInfo info;
  info.program = "train_images";
  info.model = "resnet20";
  info.images = {16, 16, 3, 3};
  info.class_names = {"cat", "d\xc3\xb6g", "\"cow\""};
  info.pixels = {{0.5, 0.4, 0.3}, {0.2, 0.25, 0.3}};
  save_model(folder / "model.safetensors", info, model->state_dict());
  const auto network = quantized(*model, {16, 16, 3});
  info.quantized = kInt8;
  save_model(folder / "int8.safetensors", info, network->state_dict());
  const NoGrad no_grad;
  const Tensor pixels = randint({4, 16, 16, 3}, {3, 3}, 0, 256, {DType::u8});
  const auto row = [](const std::vector<double>& values) {
    return cast(Tensor::from(values, {3}), DType::f32);
  };
  const Tensor x =
      (affine(cast(pixels, DType::f32), 1.0 / 255) - row(info.pixels.mean)) / row(info.pixels.stddev);
  StateDict state;
  state.set("pixels", pixels);
  state.set("x", clone(permute(x, {0, 3, 1, 2})));
  state.set("y", (*model)(x));
  state.set("y_int8", (*network)(x));
  state.set("step", step_of(*network));
  safetensors::save(folder / "pixels.safetensors", state);
}

void write_all(const fs::path& folder) {
  for (const std::string& name : test::model_kinds()) {
    const std::int64_t own = nn::model_options(name).image_size;
    // Large enough for the model, small enough for a test.
    const std::int64_t size = own < 224 ? own : name == "alexnet" ? 127 : 64;
    const auto model = nn::make_model(name, {.classes = 7, .image_size = size}, 3);
    randomize(*model);
    write(folder, name, *model, {size, size, nn::model_options(name).in_channels});
  }
  for (const bool bilinear : {false, true}) {
    nn::UNet model({.classes = 3, .in_channels = 3}, {.depth = 3, .width = 8, .bilinear = bilinear});
    model.initialize(3);
    randomize(model);
    write(folder, bilinear ? "unet_bilinear" : "unet", model, {32, 24, 3});
    write(folder, bilinear ? "unet_bilinear_nhwc" : "unet_nhwc", model, {32, 24, 3},
          {.input = nn::ImageLayout::nhwc});
  }
  write_quantized(folder, "lenet5", 28);
  write_quantized(folder, "resnet20", 32);
  write_quantized(folder, "mobilenet_v2", 64);
  Attention attention;
  attention.initialize(3);
  write(folder, "attention", attention, {7, 12});
  for (const Case& one : cases()) {
    Function model(one.f);
    write(folder, fmt::format("op_{}", one.name), model, one.sample);
    write(folder, fmt::format("op_{}_nhwc", one.name), model, one.sample, {.input = nn::ImageLayout::nhwc});
  }
  write_model_file(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  write_all(argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
