#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

class BatchNorm;
class Conv2d;

/// Owns modules and runs them in order. Their names are "0", "1", ... unless given.
///
///     nn::Sequential net;
///     net.add<nn::Conv2d>(1, 8, 3).add<nn::Relu>().add<nn::Flatten>().add<nn::Linear>(288, 10);
///     net.initialize(seed);
class Sequential : public Module {
 public:
  Sequential() = default;

  /// Appends M(arguments...) under the next number.
  template <std::derived_from<Module> M, class... Args> Sequential& add(Args&&... arguments) {
    return append(std::to_string(modules_.size()), std::make_unique<M>(std::forward<Args>(arguments)...));
  }
  /// Appends M(arguments...) under the given name.
  template <std::derived_from<Module> M, class... Args>
  Sequential& add_named(const std::string& name, Args&&... arguments) {
    return append(name, std::make_unique<M>(std::forward<Args>(arguments)...));
  }
  Sequential& append(const std::string& name, std::unique_ptr<Module> module);

  std::size_t size() const { return modules_.size(); }
  Module& operator[](std::size_t i) { return *modules_[i]; }

  Tensor forward(const Tensor& x) override;

 private:
  struct ConvNorm {
    Conv2d* conv = nullptr;
    BatchNorm* norm = nullptr;
  };

  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<ConvNorm> pairs_;  // per module; null unless it is a Conv2d followed by a BatchNorm
};

}  // namespace athanor::nn
