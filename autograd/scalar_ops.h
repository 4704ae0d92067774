#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace athanor {

// Elementwise ops of a tensor and scalars. x floating, any shape and strides; the result is dense. Computed
// in f32 (f64 for f64) and rounded once. Throws ArgumentError on any other dtype.

/// x if x > 0, else slope x; the derivative at 0 is slope. Source: Maas et al. 2013.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// x if x >= 0, else alpha (e^x - 1); the derivative at 0 is alpha. Source: Clevert et al. 2015,
/// arXiv:1511.07289.
Tensor elu(const Tensor& x, double alpha = 1);
/// log(1 + e^(beta x)) / beta, or x itself if beta x > threshold. Throws ArgumentError if beta is 0.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

/// min(max(x, low), high), with one bound or both; high if low > high; NaN stays NaN. The derivative at a
/// bound is 0. Bounds are rounded to x's dtype. Also takes integers, with integer bounds. Throws
/// ArgumentError without a bound or with a NaN bound.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high = std::nullopt);

/// floor_divide() and remainder() (elementwise.h) with a scalar divisor, which an integer dtype of x must
/// hold exactly. A half type is divided in f32, by the divisor in f32.
Tensor floor_divide(const Tensor& x, double divisor);
Tensor remainder(const Tensor& x, double divisor);

/// x^exponent by IEEE rules: 1 for exponent 0, NaN for x < 0 with a non-integer exponent. The gradient is
/// exponent x^(exponent - 1), and 0 for exponent 0.
Tensor pow(const Tensor& x, double exponent);

}  // namespace athanor
