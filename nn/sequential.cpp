#include "nn/sequential.h"

#include "autograd/conv_norm.h"
#include "autograd/elementwise.h"

namespace athanor::nn {

Sequential& Sequential::add_layer(const std::string& name, std::unique_ptr<Module> module) {
  ATH_CHECK(module, "Sequential: module '{}' must not be null", name);
  register_module(name, *module);
  modules_.push_back({std::move(module)});
  return *this;
}

Sequential& Sequential::add_layer(const std::string& name, std::unique_ptr<Conv2d> conv) {
  Conv2d* const layer = conv.get();
  add_layer(name, std::unique_ptr<Module>(std::move(conv)));
  modules_.back().conv = layer;
  return *this;
}

Sequential& Sequential::add_layer(const std::string& name, std::unique_ptr<BatchNorm> norm) {
  BatchNorm* const layer = norm.get();
  add_layer(name, std::unique_ptr<Module>(std::move(norm)));
  if (modules_.size() > 1) modules_[modules_.size() - 2].norm = layer;
  return *this;
}

Sequential& Sequential::add_layer(const std::string& name, std::unique_ptr<Sequential> inner) {
  Sequential* const layers = inner.get();
  add_layer(name, std::unique_ptr<Module>(std::move(inner)));
  modules_.back().inner = layers;
  return *this;
}

Tensor Sequential::run(const Tensor& x, const Tensor& residual) {
  DeferredNorm y = x;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const auto& [module, conv, norm, inner] = modules_[i];
    if (conv && norm) {
      ++i;
      const NormArguments arguments = norm->arguments();
      const bool adds =
          residual.defined() && i + 1 == modules_.size() && arguments.params.activation == Activation::none;
      y = conv_norm_deferred(y, conv->arguments(), arguments, adds ? residual : DeferredNorm());
      if (adds) return y.value();
    } else if (inner && residual.defined() && i + 1 == modules_.size()) {
      return inner->run(y.value(), residual);
    } else {
      y = (*module)(y.value());
    }
  }
  return residual.defined() ? y.value() + residual : y.value();
}

}  // namespace athanor::nn
