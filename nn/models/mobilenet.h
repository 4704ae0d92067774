#pragma once

#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

struct MobileNetOptions {
  double width = 1;      ///< factor of the channels of every layer, then rounded to multiples of 8
  double dropout = 0.2;  ///< before the last layer
};

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
