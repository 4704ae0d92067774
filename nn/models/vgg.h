#pragma once

#include "nn/models/model.h"
#include "nn/pool.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// VGG-11 (configuration A) with batch norm; names, initial values and 132,868,840 parameters as in
/// torchvision. Source: Simonyan and Zisserman 2015, arXiv:1409.1556, table 1.
class Vgg11Bn final : public Module {
 public:
  explicit Vgg11Bn(const ModelOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features, classifier;
  AdaptiveAvgPool2d pool{7};
};

}  // namespace athanor::nn
