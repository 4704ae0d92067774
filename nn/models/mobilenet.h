#pragma once

#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

struct MobileNetOptions {
  double width = 1;      ///< factor of the channels of every layer, then rounded to multiples of 8
  double dropout = 0.2;  ///< before the last layer
  bool timm = false;     ///< see kMobileNetV3Width075
};
/// Those of which weights are published: timm's mobilenetv2_050 and mobilenetv2_140.
inline constexpr MobileNetOptions kMobileNetV2Width050{.width = 0.5};
inline constexpr MobileNetOptions kMobileNetV2Width140{.width = 1.4};
/// MobileNetV3 as timm makes it narrower (mobilenetv3_small_075): a block is as many times wider inside as at
/// full width, the layer before the last is not scaled, norms have an epsilon of 1e-5 instead of 1e-3, and
/// there is no dropout.
inline constexpr MobileNetOptions kMobileNetV3Width075{.width = 0.75, .dropout = 0, .timm = true};

/// Names, initial values and 3,504,872 parameters as in torchvision's mobilenet_v2.
/// Source: Sandler et al. 2018, arXiv:1801.04381.
class MobileNetV2 final : public Module {
 public:
  explicit MobileNetV2(const ModelOptions& options, const MobileNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features;
  std::unique_ptr<Sequential> classifier;
};

/// Names, initial values and 5,483,032 parameters (small: 2,542,856) as in torchvision's mobilenet_v3_large
/// and mobilenet_v3_small. Source: Howard et al. 2019, arXiv:1905.02244.
class MobileNetV3 final : public Module {
 public:
  MobileNetV3(bool large, const ModelOptions& options, const MobileNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features, classifier;
};

}  // namespace athanor::nn
