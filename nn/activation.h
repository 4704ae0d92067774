#pragma once

#include "autograd/elementwise.h"
#include "autograd/scalar_ops.h"
#include "kernels/elementwise_ops.h"
#include "nn/module.h"

namespace athanor::nn {

// Every unary op as a module, for Sequential: nn::Relu, nn::Gelu, nn::GeluTanh, nn::Silu, nn::Sigmoid ...
// Layers and norms can also apply these activations themselves, as an option.

#define ATH_MODULE(Op, name)                                              \
  class Op final : public Module {                                        \
   public:                                                                \
    Tensor forward(const Tensor& x) override { return athanor::name(x); } \
  };
ATH_UNARY_OPS(ATH_MODULE)
#undef ATH_MODULE

// Activations with parameters.

/// leaky_relu() as a module.
class LeakyRelu final : public Module {
 public:
  explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

/// elu() as a module.
class Elu final : public Module {
 public:
  explicit Elu(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }

 private:
  double alpha_;
};

/// softplus() as a module.
class Softplus final : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }

 private:
  double beta_, threshold_;
};

}  // namespace athanor::nn
