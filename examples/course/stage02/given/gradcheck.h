#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd.h"
#include "random.h"

namespace engine {

/// A test: compares the gradients of `leaves` with differences, (loss(x + h) - loss(x - h)) / (2 h), where
/// the loss weights all elements of f's result. f must be smooth within h = 1/128 of the leaves' values; its
/// numbers should be about 1.
inline void gradcheck(const std::string& name, const std::vector<Variable>& leaves,
                      const std::function<Variable()>& f) {
  const Variable y = f();
  const Tensor weights = random_tensor(y.shape(), 99);
  const auto loss = [&] {
    const NoGrad no_grad;
    const std::vector<float> values = f().value().values(), weight = weights.values();
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) total += double{values[i]} * weight[i];
    return total;
  };
  for (const Variable& leaf : leaves) leaf.clear_grad();
  backward(sum_all(mul(y, Variable(weights))));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(leaves[i].grad().shape(), leaves[i].shape())
        << name << ": the gradient of input " << i << " must have the input's shape";
    const std::vector<float> gradient = leaves[i].grad().values();
    for (std::int64_t j = 0; j < leaves[i].value().numel(); ++j) {
      float& x = leaves[i].value().data()[j];
      const float before = x, h = 0x1p-7f;
      x = before + h;
      const double above = loss();
      x = before - h;
      const double below = loss();
      x = before;
      const double expected = (above - below) / (2 * double{h}), got = gradient[static_cast<std::size_t>(j)];
      ASSERT_NEAR(got, expected, 3e-3 * (1 + std::fabs(expected)))
          << name << ": element " << j << " of input " << i << " has gradient " << got
          << ", but the loss changes by " << expected << " for each unit";
    }
  }
}

/// The same of an operation: a leaf is made of each value.
inline void gradcheck_op(const std::string& name, const std::vector<Tensor>& values,
                         const std::function<Variable(const std::vector<Variable>&)>& f) {
  std::vector<Variable> leaves;
  for (const Tensor& value : values) leaves.emplace_back(value.clone(), true);
  gradcheck(name, leaves, [&] { return f(leaves); });
}

}  // namespace engine
