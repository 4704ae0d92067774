#include <algorithm>
#include <cstdlib>
#include <memory>

#include "bench/support/bench.h"
#include "bench/support/onednn_int8.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/int8_conv.h"
#include "kernels/elementwise.h"
#include "kernels/int8.h"
#include "kernels/int8_weights.h"
#include "kernels/packed_weights.h"
#include "kernels/pool.h"

// 8-bit convolutions with a ReLU, of ResNet-18, ResNet-50, MobileNetV2 and EfficientNet-B0: our own
// ("athanor"), oneDNN's, which rounds in another order ("onednn"), and ours in f32 with packed weights. Also
// ops of the same networks that are not products, beside those in f32.

namespace athanor::bench {
namespace {

struct Layer {
  const char* name;
  std::int64_t size, c, k, filter, stride;
  std::int64_t groups = 1;
};

const Layer kLayers[] = {
    {"stem", 224, 3, 64, 7, 2},
    {"56_64_64_3x3", 56, 64, 64, 3, 1},
    {"56_64_128_3x3_s2", 56, 64, 128, 3, 2},
    {"28_128_128_3x3", 28, 128, 128, 3, 1},
    {"14_256_256_3x3", 14, 256, 256, 3, 1},
    {"7_512_512_3x3", 7, 512, 512, 3, 1},
    {"56_64_64_1x1", 56, 64, 64, 1, 1},
    {"56_64_256_1x1", 56, 64, 256, 1, 1},
    {"56_256_64_1x1", 56, 256, 64, 1, 1},
    {"56_256_512_1x1_s2", 56, 256, 512, 1, 2},
    {"28_512_128_1x1", 28, 512, 128, 1, 1},
    {"28_128_512_1x1", 28, 128, 512, 1, 1},
    {"14_1024_256_1x1", 14, 1024, 256, 1, 1},
    {"14_256_1024_1x1", 14, 256, 1024, 1, 1},
    {"7_2048_512_1x1", 7, 2048, 512, 1, 1},
    {"7_512_2048_1x1", 7, 512, 2048, 1, 1},
    {"1_2048_1000_linear", 1, 2048, 1000, 1, 1},
    {"112_32_depthwise", 112, 32, 32, 3, 1, 32},
    {"112_96_depthwise_s2", 112, 96, 96, 3, 2, 96},
    {"56_144_depthwise", 56, 144, 144, 3, 1, 144},
    {"28_192_depthwise", 28, 192, 192, 3, 1, 192},
    {"28_240_depthwise_5x5", 28, 240, 240, 5, 1, 240},
    {"14_576_depthwise", 14, 576, 576, 3, 1, 576},
    {"14_672_depthwise_5x5_s2", 14, 672, 672, 5, 2, 672},
    {"7_960_depthwise", 7, 960, 960, 3, 1, 960},
};

constexpr std::int32_t kZero = 3;  ///< of x and of y

Conv2dParams params_of(const Layer& layer) {
  Conv2dParams params;
  for (int axis = 0; axis < 2; ++axis)
    params.stride[axis] = layer.stride, params.padding[axis] = layer.filter / 2;
  params.groups = layer.groups;
  params.activation = Activation::relu;
  return params;
}

/// The operands of a layer.
struct Layer8 {
  Conv2dParams params;
  Tensor x, w, multiplier, bias, y;
  std::shared_ptr<const kernels::Int8Weights> weights;

  Layer8(const Layer& layer, std::int64_t batch) : params(params_of(layer)) {
    const Shape filter{layer.k, layer.filter, layer.filter, layer.c / layer.groups};
    x = bytes_of({batch, layer.size, layer.size, layer.c}, DType::u8, 0, 255, 1);
    w = bytes_of(filter, DType::i8, -127, 127, 2);
    y = Tensor::empty(conv2d_shape(x.shape(), filter, params), {DType::u8});
    multiplier = filled({layer.k}, DType::f32, 0.5e-3, 1e-3, 3);
    bias = filled({layer.k}, DType::i32, -2000, 2000, 4);
    weights = std::make_shared<const kernels::Int8Weights>(w, multiplier, bias);
  }
  void run(const Tensor& to) const {
    kernels::conv2d_int8(cpu_context(), params, x, kZero, *weights, {}, {.zero = kZero, .low = kZero}, to);
  }
  /// By plain loops.
  Tensor reference() const {
    CpuContext& context = cpu_context();
    const Tensor to = empty_like(y);
    cpu::PrimitiveKey key =
        cpu::conv_key(context, cpu::PrimitiveKey::Op::conv_int8,
                      ConvSize(x.shape(), w.shape(), y.shape(), params), DType::u8, DType::u8);
    key.bias = true;
    const cpu::Code plain = cpu::find_code(context, cpu::int8_conv_list(), key, "plain");
    const cpu::Int8Operands step{
        .x_zero = kZero, .multiplier = multiplier.data<float>(), .rounding = {.zero = kZero, .low = kZero}};
    plain.primitive->run(context, {.first = x.raw_data(),
                                   .second = weights->in(plain.primitive->int8_layout()),
                                   .bias = bias.raw_data(),
                                   .out = to.raw_data(),
                                   .int8 = &step});
    return to;
  }

 private:
  static Tensor bytes_of(const Shape& shape, DType dtype, double low, double high, std::uint64_t seed) {
    return filled(shape, dtype, low, high, seed);
  }
};

double largest_difference(const Tensor& a, const Tensor& b) {
  int worst = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    worst = std::max(worst, std::abs(a.data<std::uint8_t>()[i] - b.data<std::uint8_t>()[i]));
  return worst;
}

void add_case(const Layer& layer, std::int64_t batch) {
  const Conv2dParams params = params_of(layer);
  const Shape in{batch, layer.size, layer.size, layer.c},
      filter{layer.k, layer.filter, layer.filter, layer.c / layer.groups};
  const Shape out = conv2d_shape(in, filter, params);
  const double macs = static_cast<double>(out.numel()) * static_cast<double>(filter.numel() / filter[0]);
  const double values = static_cast<double>(in.numel() + filter.numel() + out.numel());
  const std::string name = fmt::format("{}_n{}", layer.name, batch);
  const Work work{.bytes = values, .flops = 2 * macs, .peak = int8_peak};
  add({"conv2d_int8", "fwd", DType::u8, name, "athanor"}, work, [=] {
    const auto one = std::make_shared<const Layer8>(layer, batch);
    one->run(one->y);
    return Prepared{[=] { one->run(one->y); }, largest_difference(one->y, one->reference()), 0};
  });
  if (has_onednn_int8()) {
    add({"conv2d_int8", "fwd", DType::u8, name, "onednn"}, work, [=] {
      const auto one = std::make_shared<const Layer8>(layer, batch);
      const auto run = onednn_int8({one->params, one->x, one->w, one->multiplier, one->bias, kZero, one->y});
      run();
      return Prepared{run, largest_difference(one->y, one->reference()), 1};
    });
  }
  add({"conv2d_int8", "fwd", DType::f32, name, "packed"}, {.bytes = 4 * values, .flops = 2 * macs}, [=] {
    const Tensor x = filled(in, DType::f32, -1, 1, 1), y = Tensor::empty(out);
    const auto weights = std::make_shared<const kernels::PackedWeights>(
        filled(filter, DType::f32, -1, 1, 2), filled({layer.k}, DType::f32, -1, 1, 3));
    return Prepared{[=] { kernels::conv2d_packed(cpu_context(), params, x, *weights, {}, y); }, 0, 0};
  });
}

/// An op without products in 8-bit integers and in f32; `make`: a run on tensors of that dtype.
using Run = std::function<void()>;
void add_pair(const std::string& op, const Shape& shape, double elements,
              const std::function<Run(DType)>& make) {
  for (const DType dtype : {DType::u8, DType::f32})
    add({op, "fwd", dtype, shape_name(shape)}, {.bytes = elements * static_cast<double>(size_of(dtype))},
        [=] {
          return Prepared{make(dtype), 0, 0};
        });
}

Tensor values_of(const Shape& shape, DType dtype, std::uint64_t seed = 1) {
  return dtype == DType::u8 ? filled(shape, dtype, 0, 255, seed) : filled(shape, dtype, -1, 1, seed);
}

void add_pools(const Shape& x, const Pool2dParams& params, std::int64_t side) {
  const Shape y{x[0], side, side, x[3]};
  const auto elements = static_cast<double>(x.numel() + y.numel());
  const kernels::PoolWindows windows{{x[1], side, params.window[0], params.stride[0], params.padding[0]},
                                     {x[2], side, params.window[1], params.stride[1], params.padding[1]},
                                     params.count_padding};
  add_pair("max_pool2d", x, elements, [=](DType dtype) -> Run {
    const Tensor from = values_of(x, dtype), to = Tensor::empty(y, {dtype});
    if (dtype == DType::u8) return [=] { kernels::max_pool2d_int8(cpu_context(), params, from, to); };
    return [=] { kernels::max_pool_forward(cpu_context(), windows, from, to, {}); };
  });
  add_pair("avg_pool2d", x, elements, [=](DType dtype) -> Run {
    const Tensor from = values_of(x, dtype), to = Tensor::empty(y, {dtype});
    const float scale = 1 / static_cast<float>(params.window[0] * params.window[1]);
    if (dtype == DType::u8)
      return [=] { kernels::avg_pool2d_int8(cpu_context(), params, from, kZero, scale, {}, to); };
    return [=] { kernels::avg_pool_forward(cpu_context(), windows, from, to); };
  });
}

void add_elementwise(const Shape& shape) {
  const auto count = static_cast<double>(shape.numel());
  const Shape channels{shape[0], 1, 1, shape[3]};
  add_pair("add", shape, 3 * count, [=](DType dtype) -> Run {
    const Tensor a = values_of(shape, dtype), b = values_of(shape, dtype, 2), y = empty_like(a);
    if (dtype == DType::u8)
      return [=] { kernels::add_int8(cpu_context(), a, 0.6f, kZero, {b, 0.5f, kZero}, {}, y); };
    return [=] { kernels::binary_forward<kernels::Add>(cpu_context(), a, b, y); };
  });
  add_pair("gate", shape, 2 * count, [=](DType dtype) -> Run {
    const Tensor x = values_of(shape, dtype), gate = values_of(channels, dtype, 2), y = empty_like(x);
    if (dtype == DType::u8)
      return [=] { kernels::multiply_int8(cpu_context(), x, kZero, gate, 0, 0.003f, {}, y); };
    return [=] { kernels::binary_forward<kernels::Mul>(cpu_context(), x, gate, y); };
  });
  add_pair("silu", shape, 2 * count, [=](DType dtype) -> Run {
    const Tensor x = values_of(shape, dtype), y = empty_like(x), table = values_of({256}, DType::u8, 2);
    if (dtype == DType::u8) return [=] { kernels::lookup_int8(cpu_context(), x, table, y); };
    return [=] { kernels::unary_forward<kernels::Silu>(cpu_context(), x, y); };
  });
  add({"quantize", "fwd", DType::f32, shape_name(shape)}, {.bytes = 5 * count}, [=] {
    const Tensor x = values_of(shape, DType::f32), y = Tensor::empty(shape, {DType::u8});
    return Prepared{[=] { kernels::quantize(cpu_context(), x, {0.01f, 128}, y); }, 0, 0};
  });
  add({"dequantize", "fwd", DType::u8, shape_name(shape)}, {.bytes = 5 * count}, [=] {
    const Tensor x = values_of(shape, DType::u8), y = Tensor::empty(shape);
    return Prepared{[=] { kernels::dequantize(cpu_context(), x, {0.01f, 128}, y); }, 0, 0};
  });
}

}  // namespace

void register_all() {
  for (const Layer& layer : kLayers)
    for (const std::int64_t batch : {1, 64}) add_case(layer, batch);
  for (const std::int64_t batch : {1, 64}) {
    add_pools({batch, 112, 112, 64}, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, 56);
    add_pools({batch, 7, 7, 1280}, {.window = {7, 7}, .stride = {7, 7}}, 1);
    add_elementwise({batch, 56, 56, 24});
    add_elementwise({batch, 14, 14, 480});
  }
}

}  // namespace athanor::bench
