#pragma once

#include "nn/models/model.h"
#include "nn/pool.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// AlexNet in its one-tower form; names and 61,100,840 parameters as in torchvision.
/// Source: Krizhevsky 2014, arXiv:1404.5997.
class AlexNet final : public Module {
 public:
  explicit AlexNet(const ModelOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features, classifier;
  AdaptiveAvgPool2d pool{6};
};

}  // namespace athanor::nn
