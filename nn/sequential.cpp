#include "nn/sequential.h"

namespace athanor::nn {

Sequential& Sequential::append(const std::string& name, std::unique_ptr<Module> module) {
  ATH_CHECK(module, "Sequential: module '{}' must not be null", name);
  register_module(name, *module);
  modules_.push_back(std::move(module));
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const std::unique_ptr<Module>& module : modules_) y = (*module)(y);
  return y;
}

}  // namespace athanor::nn
