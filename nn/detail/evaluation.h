#pragma once

#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// Puts the whole tree into evaluation mode, then restores each module's mode.
class Evaluation {
 public:
  explicit Evaluation(Module& model) : model_(model) {
    model.for_each_module([&](Module& module, const auto&) { modes_.push_back(module.training()); });
    model.eval();
  }
  ~Evaluation() {
    std::size_t next = 0;  // parents first, so that a module's own mode is set last
    model_.for_each_module([&](Module& module, const auto&) { module.train(modes_[next++]); });
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  Module& model_;
  std::vector<bool> modes_;
};

}  // namespace athanor::nn
