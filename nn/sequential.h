#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/module.h"

namespace athanor::nn {

/// Owns modules and runs them in order. Their names are "0", "1", ... unless given. A BatchNorm that is added
/// after a Conv2d is one op with it: conv_norm().
///
///     nn::Sequential net;
///     net.add<nn::Conv2d>(1, 8, 3).add<nn::Relu>().add<nn::Flatten>().add<nn::Linear>(288, 10);
///     net.initialize(seed);
class Sequential : public Module {
 public:
  Sequential() = default;

  /// Appends M(arguments...) under the next number.
  template <std::derived_from<Module> M, class... Args> Sequential& add(Args&&... arguments) {
    return add_named<M>(std::to_string(modules_.size()), std::forward<Args>(arguments)...);
  }
  /// Appends M(arguments...) under the given name.
  template <std::derived_from<Module> M, class... Args>
  Sequential& add_named(const std::string& name, Args&&... arguments) {
    return add_layer(name, std::make_unique<M>(std::forward<Args>(arguments)...));
  }
  template <std::derived_from<Module> M> Sequential& append(std::unique_ptr<M> module) {
    return append(std::to_string(modules_.size()), std::move(module));
  }
  template <std::derived_from<Module> M>
  Sequential& append(const std::string& name, std::unique_ptr<M> module) {
    return add_layer(name, std::move(module));
  }

  std::size_t size() const { return modules_.size(); }
  Module& operator[](std::size_t i) { return *modules_[i].module; }

  Tensor forward(const Tensor& x) override { return run(x, {}); }
  /// forward(x) + residual. A Conv2d and a BatchNorm without activation that end it, here or in a Sequential
  /// that ends it, add the residual as they normalise.
  Tensor with_residual(const Tensor& x, const Tensor& residual) { return run(x, residual); }

 private:
  struct Part {
    std::unique_ptr<Module> module;
    Conv2d* conv = nullptr;       // the module, if it is one
    BatchNorm* norm = nullptr;    // the next module, if it is one and this is a Conv2d
    Sequential* inner = nullptr;  // the module, if it is one
  };

  /// `residual` may be undefined.
  Tensor run(const Tensor& x, const Tensor& residual);

  Sequential& add_layer(const std::string& name, std::unique_ptr<Module> module);
  Sequential& add_layer(const std::string& name, std::unique_ptr<Conv2d> conv);
  Sequential& add_layer(const std::string& name, std::unique_ptr<BatchNorm> norm);
  Sequential& add_layer(const std::string& name, std::unique_ptr<Sequential> inner);

  std::vector<Part> modules_;
};

}  // namespace athanor::nn
