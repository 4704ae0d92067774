#include "bench/support/bench.h"
#include "kernels/conv.h"
#include "kernels/cpu/context.h"

// The convolutions of LeNet-5, ResNet-20 and ResNet-18, at the batch sizes their training runs use.

namespace athanor::bench {
namespace {

struct Layer {
  const char* name;
  Shape x, w;
  std::int64_t stride, padding;
  bool first = false;  // of its network, whose backward-data is not needed
};

const Layer kLayers[] = {
    {"lenet_conv1", {64, 28, 28, 1}, {6, 5, 5, 1}, 1, 2, true},
    {"lenet_conv2", {64, 14, 14, 6}, {16, 5, 5, 6}, 1, 0},
    {"resnet20_stem", {128, 32, 32, 3}, {16, 3, 3, 3}, 1, 1, true},
    {"resnet20_16", {128, 32, 32, 16}, {16, 3, 3, 16}, 1, 1},
    {"resnet20_16_32", {128, 32, 32, 16}, {32, 3, 3, 16}, 2, 1},
    {"resnet20_32", {128, 16, 16, 32}, {32, 3, 3, 32}, 1, 1},
    {"resnet20_32_64", {128, 16, 16, 32}, {64, 3, 3, 32}, 2, 1},
    {"resnet20_64", {128, 8, 8, 64}, {64, 3, 3, 64}, 1, 1},
    {"resnet18_stem", {64, 32, 32, 3}, {64, 3, 3, 3}, 1, 1, true},
    {"resnet18_64", {64, 32, 32, 64}, {64, 3, 3, 64}, 1, 1},
    {"resnet18_64_128", {64, 32, 32, 64}, {128, 3, 3, 64}, 2, 1},
    {"resnet18_down128", {64, 32, 32, 64}, {128, 1, 1, 64}, 2, 0},
    {"resnet18_128", {64, 16, 16, 128}, {128, 3, 3, 128}, 1, 1},
    {"resnet18_256", {64, 8, 8, 256}, {256, 3, 3, 256}, 1, 1},
    {"resnet18_512", {64, 4, 4, 512}, {512, 3, 3, 512}, 1, 1},
};

enum class Pass { forward, backward_data, backward_weights };
constexpr const char* kPassNames[] = {"fwd", "bwd_data", "bwd_weights"};

struct Operands {
  Tensor x, w, y;  // the pass writes one of them
};

void run(Pass pass, const Conv2dParams& params, const Operands& t) {
  CpuContext& context = cpu_context();
  switch (pass) {
    case Pass::forward: return kernels::conv2d_forward(context, params, t.x, t.w, {}, t.y);
    case Pass::backward_data: return kernels::conv2d_backward_data(context, params, t.y, t.w, t.x);
    case Pass::backward_weights:
      return kernels::conv2d_backward_weights(context, params, t.x, t.y, t.w, Write::overwrite, {}, {});
  }
}

const Tensor& result_of(Pass pass, const Operands& t) {
  return pass == Pass::forward ? t.y : pass == Pass::backward_data ? t.x : t.w;
}

// Largest error over largest value, against Eigen; sums of up to 131,072 terms in f32 differ by their
// order alone.
double error_against_reference(Pass pass, Conv2dParams params, const Operands& t, Operands other) {
  params.impl = ConvImpl::reference;
  run(pass, params, other);
  const std::vector<double> got = result_of(pass, t).to_vector(), want = result_of(pass, other).to_vector();
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(got[i] - want[i]));
    scale = std::max(scale, std::abs(want[i]));
  }
  return worst / scale;
}

Conv2dParams params_of(const Layer& layer, ConvImpl impl) {
  Conv2dParams params;
  for (int axis = 0; axis < 2; ++axis)
    params.stride[axis] = layer.stride, params.padding[axis] = layer.padding;
  params.impl = impl;
  return params;
}

/// Whether this machine has code behind `impl` for a layer's pass.
bool runs(Layer layer, Pass pass, DType dtype, ConvImpl impl) {
  const Conv2dParams params = params_of(layer, impl);
  layer.x[0] = 1;
  try {
    run(pass, params,
        {filled(layer.x, dtype, -1, 1, 1), filled(layer.w, dtype, -1, 1, 2),
         filled(conv2d_shape(layer.x, layer.w, params), dtype, -1, 1, 3)});
  } catch (const BackendError&) {
    return false;
  }
  return true;
}

void add_case(const Layer& layer, Pass pass, DType dtype, ConvImpl impl) {
  const Conv2dParams params = params_of(layer, impl);
  const Shape out = conv2d_shape(layer.x, layer.w, params);
  const double macs = static_cast<double>(out.numel()) * static_cast<double>(layer.w.numel() / layer.w[0]);
  const double bytes = static_cast<double>(layer.x.numel() + layer.w.numel() + out.numel()) *
                       static_cast<double>(size_of(dtype));
  add({"conv2d", kPassNames[static_cast<int>(pass)], dtype, layer.name, std::string(name_of(impl))},
      {.bytes = bytes, .flops = 2 * macs}, [=] {
        const Operands t{filled(layer.x, dtype, -1, 1, 1), filled(layer.w, dtype, -1, 1, 2),
                         filled(out, dtype, -1, 1, 3)};
        Operands other = t;
        (pass == Pass::forward         ? other.y
         : pass == Pass::backward_data ? other.x
                                       : other.w) = empty_like(result_of(pass, t));
        run(pass, params, t);
        return Prepared{[=] { run(pass, params, t); }, error_against_reference(pass, params, t, other),
                        16 * epsilon_of(dtype) + 1e-4};
      });
}

}  // namespace

void register_all() {
  for (const Layer& layer : kLayers) {
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      if (pass == Pass::backward_data && layer.first) continue;
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const ConvImpl impl : {ConvImpl::automatic, ConvImpl::reference, ConvImpl::vendor,
                                    ConvImpl::direct, ConvImpl::winograd})
          if (runs(layer, pass, dtype, impl)) add_case(layer, pass, dtype, impl);
      }
    }
  }
}

}  // namespace athanor::bench
