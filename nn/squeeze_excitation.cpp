#include "nn/squeeze_excitation.h"

#include "autograd/elementwise.h"
#include "autograd/pool.h"

namespace athanor::nn {
namespace {

Conv2dOptions layer(const SqueezeExcitationOptions& options, Activation activation) {
  return {.activation = activation, .weight_init = options.weight_init, .bias_init = options.bias_init};
}

}  // namespace

SqueezeExcitation::SqueezeExcitation(std::int64_t channels, std::int64_t squeezed,
                                     const SqueezeExcitationOptions& options)
    : hard_gate_(options.hard_gate),
      fc1(channels, squeezed, 1, layer(options, options.activation)),
      fc2(squeezed, channels, 1, layer(options, Activation::none)) {
  register_module("fc1", fc1);
  register_module("fc2", fc2);
}

Tensor SqueezeExcitation::forward(const Tensor& x) {
  const Tensor scores = fc2(fc1(adaptive_avg_pool2d(x, 1, 1)));  // [N, 1, 1, C]
  return x * (hard_gate_ ? hardsigmoid(scores) : sigmoid(scores));
}

}  // namespace athanor::nn
