#include "nn/models/vision_transformer.h"

#include <array>
#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/stochastic_depth.h"

namespace athanor::nn {
namespace {

constexpr LayerNormOptions kVitNorm{.eps = 1e-6};

LinearOptions mlp_layer(Activation activation = Activation::none) {
  return {.activation = activation,
          .weight_init = [](const Tensor& w, RandomKey key) { init::xavier_uniform(w, key); },
          .bias_init = [](const Tensor& b, RandomKey key) { init::normal(b, key, 0, 1e-6); }};
}

Conv2dOptions patch_layer(std::int64_t patch) {
  return {.stride = patch,
          .weight_init =
              [](const Tensor& w, RandomKey key) {
                const double deviation = 1 / std::sqrt(static_cast<double>(init::fans(w.shape()).in));
                init::truncated_normal(w, key, 0, deviation, -2, 2);
              },
          .bias_init = init::zeros};
}

/// x + attention(norm(x)), then the same with an MLP. [N, T, D] -> [N, T, D].
class EncoderBlock final : public Module {
 public:
  explicit EncoderBlock(const VisionTransformerOptions& options)
      : ln_1({options.width}, kVitNorm),
        ln_2({options.width}, kVitNorm),
        self_attention(options.width, {.heads = options.heads, .dropout = options.attention_dropout}),
        dropout(static_cast<float>(options.dropout)) {
    mlp.add_named<Linear>("0", options.width, options.mlp, mlp_layer(Activation::gelu));
    mlp.add_named<Dropout>("2", static_cast<float>(options.dropout));
    mlp.add_named<Linear>("3", options.mlp, options.width, mlp_layer());
    mlp.add_named<Dropout>("4", static_cast<float>(options.dropout));
    register_module("ln_1", ln_1);
    register_module("self_attention", self_attention);
    register_module("dropout", dropout);
    register_module("ln_2", ln_2);
    register_module("mlp", mlp);
    register_module("stochastic_depth", stochastic_depth);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = stochastic_depth(dropout(self_attention(ln_1(x)))) + x;
    return stochastic_depth(mlp(ln_2(y))) + y;
  }

 private:
  LayerNorm ln_1, ln_2;
  MultiheadAttention self_attention;
  Dropout dropout;
  Sequential mlp;
  StochasticDepth stochastic_depth{0};  // of both branches; --drop-path sets it
};

}  // namespace

/// The tokens with their positions, through all blocks. [N, T, D] -> [N, T, D].
class VisionTransformer::Encoder final : public Module {
 public:
  Encoder(std::int64_t tokens, const VisionTransformerOptions& options)
      : pos_embedding_(
            register_parameter("pos_embedding", Tensor::zeros({1, tokens, options.width}), {.decay = false})),
        dropout(static_cast<float>(options.dropout)),
        ln({options.width}, kVitNorm) {
    for (int i = 0; i < options.layers; ++i)
      layers.add_named<EncoderBlock>(fmt::format("encoder_layer_{}", i), options);
    register_module("dropout", dropout);
    register_module("layers", layers);
    register_module("ln", ln);
    needs_values();
  }
  Tensor forward(const Tensor& x) override { return ln(layers(dropout(x + pos_embedding_))); }

 private:
  void reset(const InitKeys& keys) override {
    init::normal(pos_embedding_, keys("pos_embedding"), 0, 0.02);  // as in BERT
  }

  Tensor pos_embedding_;
  Dropout dropout;
  Sequential layers;
  LayerNorm ln;
};

VisionTransformer::VisionTransformer(const ModelOptions& options, const VisionTransformerOptions& more)
    : height_(options.image_size),
      width_(options.width()),
      class_token_(register_parameter("class_token", Tensor::zeros({1, 1, more.width}), {.decay = false})),
      conv_proj_(options.in_channels, more.width, more.patch, patch_layer(more.patch)) {
  for (const std::int64_t side : {height_, width_})
    ATH_CHECK(side > 0 && side % more.patch == 0,
              "VisionTransformer: patches of {} pixels must divide the image's sides, but got {}", more.patch,
              side);
  encoder_ = std::make_unique<Encoder>(height_ / more.patch * (width_ / more.patch) + 1, more);
  heads_.add_named<Linear>("head", more.width, options.classes,
                           LinearOptions{.weight_init = init::zeros, .bias_init = init::zeros});
  register_module("conv_proj", conv_proj_);
  register_module("encoder", *encoder_);
  register_module("heads", heads_);
  needs_values();
}

Tensor VisionTransformer::forward(const Tensor& x) {
  ATH_CHECK(x.rank() == 4 && x.dim(1) == height_ && x.dim(2) == width_,
            "VisionTransformer: images must be [N, {}, {}, C], but got {}", height_, width_, x.shape());
  const Tensor patches = flatten(conv_proj_(x), 1, 2);  // [N, T - 1, D]
  const std::array<Tensor, 2> tokens{expand(class_token_, {x.dim(0), 1, class_token_.dim(2)}), patches};
  return heads_(select((*encoder_)(cat(tokens, 1)), 1, 0));
}

void VisionTransformer::reset(const InitKeys&) {
  init::constant(class_token_, 0);
}

}  // namespace athanor::nn
