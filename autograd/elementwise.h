#pragma once

#include "tensor/tensor.h"

namespace athanor {

// Binary; operands broadcast by NumPy's rule and have one floating dtype and device; any strides. Gradients
// are summed back to each operand's shape. Throws ArgumentError on shapes that do not broadcast and on mixed
// dtypes or devices.

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// a / b by IEEE rules: no check for zero.
Tensor div(const Tensor& a, const Tensor& b);

/// x * scale + shift, with scalars: one pass, no tensor is made of them.
Tensor affine(const Tensor& x, double scale, double shift = 0);

// Unary; x floating, any shape and strides; the result is dense. Computed in f32 (f64 for f64) and rounded
// once; kernels/math.h says how exactly.

/// max(x, 0); the derivative at 0 is 0. NaN stays NaN.
Tensor relu(const Tensor& x);
/// x Phi(x). Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
Tensor gelu(const Tensor& x);
/// Its approximation by tanh.
Tensor gelu_tanh(const Tensor& x);
/// x sigmoid(x). Source: Elfwing et al. 2017, arXiv:1702.03118.
Tensor silu(const Tensor& x);
/// 1 / (1 + e^-x)
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
/// Natural logarithm: -infinity at 0, NaN below.
Tensor log(const Tensor& x);
/// NaN below 0; the derivative at 0 is infinite.
Tensor sqrt(const Tensor& x);
/// x * x
Tensor square(const Tensor& x);
/// |x|; the derivative at 0 and at NaN is 0.
Tensor abs(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return affine(x, -1);
}

}  // namespace athanor
