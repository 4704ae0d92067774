#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace athanor {

// Elementwise ops of a tensor and numbers. x floating, any shape and strides; the result is dense. Computed
// in f32 (f64 for f64) and rounded once. Throws ArgumentError on another dtype.

/// x above 0, slope x elsewhere; the derivative at 0 is slope. Source: Maas et al. 2013.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// x from 0 up, alpha (e^x - 1) below; the derivative at 0 is alpha. Source: Clevert et al. 2015,
/// arXiv:1511.07289.
Tensor elu(const Tensor& x, double alpha = 1);
/// log(1 + e^(beta x)) / beta, and x itself where beta x > threshold. Throws ArgumentError where beta is 0.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

/// min(max(x, low), high), with one bound or both; high where low > high; NaN stays NaN. The derivative at a
/// bound is 0. Bounds are rounded to x's dtype. Takes integers, too, with bounds that are integers. Throws
/// ArgumentError without a bound and where one is NaN.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high = std::nullopt);

/// floor_divide() and remainder() of two tensors (elementwise.h), one of them a number, which an integer
/// dtype of x must hold.
Tensor floor_divide(const Tensor& x, double divisor);
Tensor remainder(const Tensor& x, double divisor);

/// x^exponent by IEEE rules: 1 where exponent is 0, NaN where x < 0 and exponent is no integer. The gradient
/// is exponent x^(exponent - 1), and 0 where exponent is 0.
Tensor pow(const Tensor& x, double exponent);

}  // namespace athanor
