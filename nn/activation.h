#pragma once

#include "autograd/elementwise.h"
#include "kernels/elementwise_ops.h"
#include "nn/module.h"

namespace athanor::nn {

// Every unary op as a module, for Sequential: nn::Relu, nn::Gelu, nn::GeluTanh, nn::Silu, nn::Sigmoid ...
// Layers and norms apply the same activations themselves, as an option.

#define ATH_MODULE(Op, name)                                              \
  class Op final : public Module {                                        \
   public:                                                                \
    Tensor forward(const Tensor& x) override { return athanor::name(x); } \
  };
ATH_UNARY_OPS(ATH_MODULE)
#undef ATH_MODULE

}  // namespace athanor::nn
