#include "nn/models/convnext.h"

#include "autograd/elementwise.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/conv2d.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/stochastic_depth.h"

namespace athanor::nn {
namespace {

constexpr LayerNormOptions kConvNextNorm{.eps = 1e-6};

void weight_init(const Tensor& w, RandomKey key) {
  init::truncated_normal(w, key, 0, 0.02, -2, 2);
}

Conv2dOptions patches(std::int64_t stride) {
  return {.stride = stride, .weight_init = weight_init, .bias_init = init::zeros};
}

LinearOptions pointwise(Activation activation = Activation::none) {
  return {.activation = activation, .weight_init = weight_init, .bias_init = init::zeros};
}

/// x + layer_scale (depthwise 7x7, norm, linear to 4 C, GELU, linear to C), with stochastic depth.
class Block final : public Module {
 public:
  Block(std::int64_t channels, double layer_scale, double drop)
      : initial_scale_(layer_scale),
        // Rank 3 as in torchvision. In f16, 1e-6 would have only one and a half digits.
        layer_scale_(register_parameter("layer_scale", Tensor::zeros({channels, 1, 1}),
                                        {.keep_f32 = true, .decay = false})),
        stochastic_depth_(drop) {
    block_.add_named<Conv2d>(
        "0", channels, channels, 7,
        Conv2dOptions{
            .padding = 3, .groups = channels, .weight_init = weight_init, .bias_init = init::zeros});
    block_.add_named<LayerNorm>("2", Shape{channels}, kConvNextNorm);
    block_.add_named<Linear>("3", channels, 4 * channels, pointwise(Activation::gelu));
    block_.add_named<Linear>("5", 4 * channels, channels, pointwise());
    register_module("block", block_);
    register_module("stochastic_depth", stochastic_depth_);
    needs_values();
  }

  Tensor forward(const Tensor& x) override {
    const Tensor scale = cast(reshape(layer_scale_, {layer_scale_.dim(0)}), x.dtype());
    return stochastic_depth_(block_(x) * scale) + x;
  }

 private:
  void reset(const InitKeys&) override { init::constant(layer_scale_, initial_scale_); }

  double initial_scale_;
  Tensor layer_scale_;
  Sequential block_;
  StochasticDepth stochastic_depth_;
};

}  // namespace

ConvNeXt::ConvNeXt(const ModelOptions& options, const ConvNeXtOptions& more) {
  auto stem = std::make_unique<Sequential>();
  stem->add<Conv2d>(options.in_channels, more.widths[0], 4, patches(4));
  stem->add<LayerNorm>(Shape{more.widths[0]}, kConvNextNorm);
  features.append(std::move(stem));
  int all_blocks = 0, block = 0;
  for (const int blocks : more.blocks) all_blocks += blocks;
  for (std::size_t i = 0; i < more.blocks.size(); ++i) {
    if (i > 0) {
      auto smaller = std::make_unique<Sequential>();
      smaller->add<LayerNorm>(Shape{more.widths[i - 1]}, kConvNextNorm);
      smaller->add<Conv2d>(more.widths[i - 1], more.widths[i], 2, patches(2));
      features.append(std::move(smaller));
    }
    auto stage = std::make_unique<Sequential>();
    for (int j = 0; j < more.blocks[i]; ++j, ++block) {
      const double drop = all_blocks > 1 ? more.stochastic_depth * block / (all_blocks - 1) : 0;
      stage->add<Block>(more.widths[i], more.layer_scale, drop);
    }
    features.append(std::move(stage));
  }
  classifier.add_named<LayerNorm>("0", Shape{more.widths.back()}, kConvNextNorm);
  classifier.add_named<Linear>("2", more.widths.back(), options.classes, pointwise());
  register_module("features", features);
  register_module("classifier", classifier);
}

Tensor ConvNeXt::forward(const Tensor& x) {
  return classifier(flatten(adaptive_avg_pool2d(features(x), 1, 1)));
}

}  // namespace athanor::nn
