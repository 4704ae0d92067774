#include "nn/sequential.h"

#include "nn/conv_norm.h"

namespace athanor::nn {

Sequential& Sequential::append(const std::string& name, std::unique_ptr<Module> module) {
  ATH_CHECK(module, "Sequential: module '{}' must not be null", name);
  register_module(name, *module);
  if (auto* const norm = dynamic_cast<BatchNorm*>(module.get()); norm && !modules_.empty())
    pairs_.back() = {dynamic_cast<Conv2d*>(modules_.back().get()), norm};
  pairs_.emplace_back();
  modules_.push_back(std::move(module));
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    if (const auto [conv, norm] = pairs_[i]; conv) {
      y = conv_norm_act(*conv, *norm, y);
      ++i;
    } else {
      y = (*modules_[i])(y);
    }
  }
  return y;
}

}  // namespace athanor::nn
