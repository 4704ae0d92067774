#pragma once

#include "autograd/shape.h"
#include "nn/module.h"

namespace athanor::nn {

/// [N, ...] -> [N, rest]; an image is flattened as H, W, C, channels fastest.
class Flatten final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
};

}  // namespace athanor::nn
