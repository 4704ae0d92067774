#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

/// a + b, broadcast by NumPy's rule. One floating dtype. Throws ArgumentError on shapes that do not broadcast
/// and on mixed dtypes or devices.
Tensor add(const Tensor& a, const Tensor& b);
/// a * b, broadcast as in add().
Tensor mul(const Tensor& a, const Tensor& b);

Tensor sub(const Tensor& a, const Tensor& b);
/// a / b by IEEE rules: no check for zero.
Tensor div(const Tensor& a, const Tensor& b);
/// x * scale + shift, with scalars: one pass, no tensor is made of them.
Tensor affine(const Tensor& x, double scale, double shift = 0);

// Unary; x floating, any shape and strides.

/// max(x, 0); the derivative at 0 is 0.
Tensor relu(const Tensor& x);
/// x Phi(x); exact (erf) or the tanh approximation. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
enum class Gelu : std::uint8_t { erf, tanh };
Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);
/// x sigmoid(x). Source: Elfwing et al. 2017, arXiv:1702.03118.
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}

}  // namespace athanor
