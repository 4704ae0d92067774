#pragma once

#include <cstdint>

#include "nn/conv2d.h"

namespace athanor::nn {

struct SqueezeExcitationOptions {
  Activation activation = Activation::relu;  ///< between the two layers
  bool hard_gate = false;                    ///< hardsigmoid instead of sigmoid
  Init weight_init{};                        ///< of both layers, as in Conv2dOptions
  Init bias_init{};
};

/// Scales the channels of an image by gates computed from their means: x [N, H, W, C] -> x
/// gate(fc2(activation(fc1(mean of x over H and W)))), with `squeezed` channels between. fc1 and fc2 are 1x1
/// convolutions, as in torchvision. Source: Hu, Shen and Sun 2018, arXiv:1709.01507.
class SqueezeExcitation final : public Module {
 public:
  SqueezeExcitation(std::int64_t channels, std::int64_t squeezed,
                    const SqueezeExcitationOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  bool hard_gate_;
  Conv2d fc1, fc2;
};

}  // namespace athanor::nn
