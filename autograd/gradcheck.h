#pragma once  // Explained in docs/gradcheck.md.

#include <functional>
#include <span>

#include "tensor/tensor.h"

namespace athanor {

struct GradcheckOptions {
  double step = 1e-6;      ///< of the central difference
  double relative = 1e-5;  ///< tolerance, against the larger of the two gradients
  double absolute = 1e-7;
};

/// Compares the gradients of fn's result with central differences, element by element, for every input that
/// needs a gradient. A result of any shape is contracted with fixed random weights. Inputs must be f64
/// leaves, and may be strided or empty. Throws Error naming input, element and both values on a mismatch.
void gradcheck(const std::function<Tensor(std::span<const Tensor>)>& fn, std::span<const Tensor> inputs,
               const GradcheckOptions& options = {});

}  // namespace athanor
