#include "kernels/conv.h"

#include "bench/cuda/families.h"
#include "bench/cuda/impls.h"
#include "bench/support/device_case.h"
#include "kernels/cuda/context.h"

namespace athanor::bench {
namespace {

// The convolutions of a ResNet-50, each kind once, with 64 images of 224 x 224. The small case has one image.
struct Layer {
  const char* name;
  std::int64_t side, in, out, window, stride;
  bool first = false;  // of its network, whose backward-data is not needed
};
constexpr Layer kResNet50[] = {
    {"stem_7x7s2_3_64", 224, 3, 64, 7, 2, true}, {"56_1x1_64_256", 56, 64, 256, 1, 1},
    {"56_1x1_256_64", 56, 256, 64, 1, 1},        {"56_3x3_64_64", 56, 64, 64, 3, 1},
    {"56_1x1s2_256_512", 56, 256, 512, 1, 2},    {"56_3x3s2_128_128", 56, 128, 128, 3, 2},
    {"28_3x3_128_128", 28, 128, 128, 3, 1},      {"14_1x1_1024_256", 14, 1024, 256, 1, 1},
    {"14_3x3_256_256", 14, 256, 256, 3, 1},      {"7_3x3_512_512", 7, 512, 512, 3, 1},
};
constexpr Layer kEmulated[] = {{"8_3x3_16_24", 8, 16, 24, 3, 1}, {"8_1x1s2_16_24", 8, 16, 24, 1, 2}};
constexpr std::int64_t kImages = 64;

enum class Pass { forward, backward_data, backward_weights };
constexpr const char* kPasses[] = {"fwd", "bwd_data", "bwd_weights"};

// t: x, w, y, of which the pass writes one.
template <class Context>
void run(Context& context, Pass pass, Conv2dParams params, const Way<ConvImpl>& way,
         std::span<const Tensor> t) {
  const auto queue = [&] {
    switch (pass) {
      case Pass::forward: return kernels::conv2d_forward(context, params, t[0], t[1], {}, t[2]);
      case Pass::backward_data: return kernels::conv2d_backward_data(context, params, t[2], t[1], t[0]);
      case Pass::backward_weights:
        return kernels::conv2d_backward_weights(context, params, t[0], t[2], t[1], Write::overwrite, {}, {});
    }
  };
  if constexpr (std::is_same_v<Context, CudaContext>) {
    const Tf32 allowed(context, way.tf32);
    params.impl = way.impl;
    queue();
  } else {
    queue();
  }
}

void add_pass(const Layer& l, Pass pass, const Way<ConvImpl>& way) {
  Conv2dParams params;
  for (int axis = 0; axis < 2; ++axis) params.stride[axis] = l.stride, params.padding[axis] = l.window / 2;
  const Shape x = {1, l.side, l.side, l.in}, w = {l.out, l.window, l.window, l.in};
  const Shape y = conv2d_shape(x, w, params);
  const std::int64_t tiles = cuda_is_emulated() ? 1 : kImages;
  const double bytes =
      bytes_of(x, way.dtype) + bytes_of(y, way.dtype) + bytes_of(w, way.dtype) / static_cast<double>(tiles);
  const double flops = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel() / l.out);
  add({.op = "conv2d",
       .dir = kPasses[static_cast<int>(pass)],
       .dtype = way.dtype,
       .shape = x,
       .work = {.bytes = bytes, .flops = flops},
       .prepare =
           [=] {
             std::vector<Operand> operands = {{pattern(x, way.dtype, -1, 1, 1)},
                                              {pattern(w, way.dtype, -1, 1, 2), Role::whole},
                                              {pattern(y, way.dtype, -1, 1, 3)}};
             if (pass == Pass::forward) operands[2] = result(Role::row_result, y, way.dtype);
             if (pass == Pass::backward_data) operands[0] = result(Role::row_result, x, way.dtype);
             if (pass == Pass::backward_weights) operands[1] = result(Role::sum_result, w, way.dtype);
             return call(std::move(operands), way.tolerance(), [=](auto& context, std::span<const Tensor> t) {
               run(context, pass, params, way, t);
             });
           },
       .tiles = tiles,
       .impl = way.name(),
       .name = fmt::format("{}x{}", tiles, l.name),
       .peak = way.peak()});
}

}  // namespace

void add_conv() {
  const auto layers =
      cuda_is_emulated() ? std::span<const Layer>(kEmulated) : std::span<const Layer>(kResNet50);
  for (const Layer& layer : layers) {
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      if (pass == Pass::backward_data && layer.first) continue;
      for (const auto& way : ways<ConvImpl>()) add_pass(layer, pass, way);
    }
  }
}

}  // namespace athanor::bench
