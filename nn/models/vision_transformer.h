#pragma once

#include "nn/conv2d.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The defaults are the tiny model (ViT-Ti/16).
struct VisionTransformerOptions {
  std::int64_t patch = 16;       ///< pixels along each side of a patch
  int layers = 12;               ///< blocks of attention and MLP
  std::int64_t heads = 3;        ///< of the attention
  std::int64_t width = 192;      ///< channels of a token
  std::int64_t mlp = 768;        ///< channels within the MLPs
  double dropout = 0;            ///< of the tokens, after the attention and within the MLPs
  double attention_dropout = 0;  ///< of the attention's weights
};
inline constexpr VisionTransformerOptions kVitTiny{};
inline constexpr VisionTransformerOptions kVitS16{.heads = 6, .width = 384, .mlp = 1536};
inline constexpr VisionTransformerOptions kVitB16{.heads = 12, .width = 768, .mlp = 3072};

/// Transformer over the patches of an image and a class token; names and initial values as in torchvision's
/// VisionTransformer(image_size, patch, layers, heads, width, mlp). Images must have the size it was built
/// for, of multiples of `patch`. The last layer is initially zero.
/// Source: Dosovitskiy et al. 2021, arXiv:2010.11929; the smaller ones: Touvron et al. 2021,
/// arXiv:2012.12877.
class VisionTransformer final : public Module {
 public:
  explicit VisionTransformer(const ModelOptions& options, const VisionTransformerOptions& more = kVitTiny);
  Tensor forward(const Tensor& x) override;

 private:
  class Encoder;

  void reset(const InitKeys& keys) override;

  std::int64_t height_, width_;
  Tensor class_token_;
  Conv2d conv_proj_;
  std::unique_ptr<Module> encoder_;
  Sequential heads_;
};

}  // namespace athanor::nn
