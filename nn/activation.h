#pragma once

#include "autograd/elementwise.h"
#include "nn/module.h"

namespace athanor::nn {

// Activations as modules, for Sequential. Layers and norms have them fused, as an option.

class Relu final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class Gelu final : public Module {
 public:
  explicit Gelu(athanor::Gelu form = athanor::Gelu::erf) : form_(form) {}
  Tensor forward(const Tensor& x) override { return gelu(x, form_); }

 private:
  athanor::Gelu form_;
};

class Silu final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Sigmoid final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

}  // namespace athanor::nn
